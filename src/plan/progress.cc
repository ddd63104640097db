#include "plan/progress.h"

#include <algorithm>

namespace thalweg::plan {

struct PlanProgress::Index {
  std::vector<std::uint32_t> source_buffer;
  std::vector<std::uint32_t> target_buffer;
  std::vector<Rank> rank_of;

  explicit Index(const Plan& plan)
      : source_buffer(plan.transfers.size()), target_buffer(plan.transfers.size()) {
    const auto& transfers = plan.transfers;
    const Buckets by_chunk(transfers.size(), plan.chunks.size(),
                           [&](std::uint32_t i) { return transfers[i].chunk.index(); });
    // number[rank] is the rank's buffer of this chunk, if the number was assigned for this chunk.
    std::vector<std::uint32_t> number(static_cast<std::size_t>(plan.ranks));
    for (std::size_t c = 0; c < by_chunk.size(); ++c) {
      const std::size_t first_of_chunk = rank_of.size();
      const auto number_of = [&](Rank rank) {
        std::uint32_t& n = number[rank.index()];
        if (n < first_of_chunk || n >= rank_of.size() || rank_of[n] != rank) {
          n = static_cast<std::uint32_t>(rank_of.size());
          rank_of.push_back(rank);
        }
        return n;
      };
      for (const std::uint32_t i : by_chunk[c]) {
        source_buffer[i] = number_of(transfers[i].source);
        target_buffer[i] = number_of(transfers[i].target);
      }
    }
  }
};

PlanProgress::PlanProgress(const Plan& plan) : PlanProgress(plan, Index(plan)) {}

PlanProgress::PlanProgress(const Plan& plan, Index index)
    : plan_(plan),
      target_buffer_(std::move(index.target_buffer)),
      rank_of_(std::move(index.rank_of)),
      buffers_of_rank_(rank_of_.size(), static_cast<std::size_t>(plan.ranks),
                       [&](std::uint32_t b) { return rank_of_[b].index(); }),
      sends_(plan.transfers.size(), rank_of_.size(),
             [&](std::uint32_t i) { return index.source_buffer[i]; }),
      arrivals_(plan.transfers.size(), rank_of_.size(),
                [&](std::uint32_t i) { return target_buffer_[i]; }),
      next_send_(rank_of_.size(), 0),
      version_(rank_of_.size(), kNotStarted),
      has_arrived_(plan.transfers.size(), 0),
      arrivals_left_(static_cast<std::size_t>(plan.ranks), 0) {
  for (std::size_t b = 0; b < rank_of_.size(); ++b) {
    std::ranges::stable_sort(sends_[b], {}, [&](auto i) { return plan.transfers[i].after; });
  }
  for (const PlanTransfer& t : plan.transfers) ++arrivals_left_[t.target.index()];
}

}  // namespace thalweg::plan
