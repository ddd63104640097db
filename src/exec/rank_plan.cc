#include "exec/rank_plan.h"

#include <algorithm>
#include <unordered_map>

#include "base/check.h"

namespace thalweg {

RankPlan::RankPlan(const Plan& plan, Rank rank) {
  CHECK(rank.valid() && rank.value() < plan.ranks);
  std::unordered_map<std::int32_t, std::uint32_t> buffer_of_chunk;
  const auto buffer_of = [&](ChunkIndex chunk) {
    const auto [place, is_new] =
        buffer_of_chunk.try_emplace(chunk.value(), static_cast<std::uint32_t>(buffers_.size()));
    if (is_new) {
      buffers_.push_back({chunk, static_cast<std::size_t>(plan.size_of(chunk).count()), {}, {}});
    }
    return place->second;
  };
  std::vector<std::uint32_t> next_slot(static_cast<std::size_t>(plan.ranks), 0);
  for (const PlanTransfer& transfer : plan.transfers) {
    const std::uint32_t slot = next_slot[transfer.target.index()]++;
    if (transfer.source == rank) {
      const std::uint32_t buffer = buffer_of(transfer.chunk);
      buffers_[buffer].sends.push_back(static_cast<std::uint32_t>(sends_.size()));
      sends_.push_back({transfer.target, slot, buffer, static_cast<std::uint32_t>(transfer.after),
                        transfer.kind});
      peers_.push_back(transfer.target);
    } else if (transfer.target == rank) {
      const std::uint32_t buffer = buffer_of(transfer.chunk);
      const auto order = static_cast<std::uint32_t>(buffers_[buffer].arrivals.size());
      buffers_[buffer].arrivals.push_back(slot);
      arrivals_.push_back({transfer.source, buffer, order, transfer.kind});
      peers_.push_back(transfer.source);
    }
  }
  for (Buffer& buffer : buffers_) {
    std::ranges::stable_sort(buffer.sends, {}, [&](std::uint32_t i) { return sends_[i].after; });
  }
  std::ranges::sort(peers_);
  const auto [first, last] = std::ranges::unique(peers_);
  peers_.erase(first, last);
}

}  // namespace thalweg
