#include "plan/random_execution.h"

#include <fmt/core.h>

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace thalweg::plan {
namespace {

// Contributions are random 64-bit numbers: a wrong sum looks right only once in 2^64.
using Number = std::uint64_t;

struct Buffer {
  std::vector<std::optional<Number>> versions;
  std::vector<std::size_t> arrivals;  // transfers, in plan order
};

class RandomExecution {
 public:
  RandomExecution(const Plan& plan, Prng& prng) : plan_(plan), prng_(prng) {
    for (int r = 0; r < plan.ranks; ++r) contribution_.push_back(prng.next());
    for (std::size_t i = 0; i < plan.transfers.size(); ++i) {
      const PlanTransfer& t = plan.transfers[i];
      buffer(t.source, t.chunk);
      buffer(t.target, t.chunk).arrivals.push_back(i);
      unsent_.insert(i);
    }
  }

  std::string run() {
    while (true) {
      std::vector<std::size_t> sendable;
      for (const std::size_t i : unsent_) {
        const PlanTransfer& t = plan_.transfers[i];
        const auto& versions = buffer(t.source, t.chunk).versions;
        if (static_cast<std::size_t>(t.after) < versions.size()) sendable.push_back(i);
      }
      const std::size_t choices = sendable.size() + flying_.size();
      if (choices == 0) break;
      const std::size_t choice = prng_.below(choices);
      if (choice < sendable.size()) {
        if (std::string problem = send(sendable[choice]); !problem.empty()) return problem;
      } else {
        deliver(choice - sendable.size());
      }
    }
    if (!unsent_.empty()) return fmt::format("deadlock: transfer {} never sent", *unsent_.begin());
    return check();
  }

 private:
  bool contributes(Rank rank, const Chunk& chunk) const {
    return chunk.source.valid() ? rank == chunk.source : rank.value() < plan_.contributors;
  }

  Buffer& buffer(Rank rank, ChunkIndex chunk) {
    const auto [entry, fresh] = buffers_.try_emplace({rank.value(), chunk.value()});
    if (fresh) {
      const bool own = contributes(rank, plan_.chunks[chunk.index()]);
      entry->second.versions.push_back(own ? std::optional(contribution_[rank.index()])
                                           : std::nullopt);
    }
    return entry->second;
  }

  std::string send(std::size_t i) {
    const PlanTransfer& t = plan_.transfers[i];
    const auto& value = buffer(t.source, t.chunk).versions[static_cast<std::size_t>(t.after)];
    if (!value) return fmt::format("transfer {} carries nothing", i);
    unsent_.erase(i);
    flying_.emplace_back(i, *value);
    return {};
  }

  void deliver(std::size_t which) {
    arrived_.insert(flying_[which]);
    const PlanTransfer& t = plan_.transfers[flying_[which].first];
    flying_.erase(flying_.begin() + static_cast<std::ptrdiff_t>(which));
    Buffer& b = buffer(t.target, t.chunk);
    while (b.versions.size() <= b.arrivals.size()) {
      const auto next = arrived_.find(b.arrivals[b.versions.size() - 1]);
      if (next == arrived_.end()) break;
      const bool replace = plan_.transfers[next->first].kind == TransferKind::kCopy;
      const Number before = replace ? 0 : b.versions.back().value_or(0);
      b.versions.emplace_back(before + next->second);
    }
  }

  std::string check() {
    for (std::size_t c = 0; c < plan_.chunks.size(); ++c) {
      const Chunk& chunk = plan_.chunks[c];
      for (Rank rank(0); rank.value() < plan_.contributors; ++rank) {
        if (chunk.target.valid() && rank != chunk.target) continue;
        const auto& last = buffer(rank, ChunkIndex(static_cast<std::int32_t>(c))).versions.back();
        if (!last || *last != wanted(rank, chunk)) {
          return fmt::format("rank {} has a wrong result for chunk {}", rank.value(), c);
        }
      }
    }
    return {};
  }

  Number wanted(Rank rank, const Chunk& chunk) const {
    if (chunk.source.valid()) return contribution_[chunk.source.index()];
    Number sum = 0;
    if (plan_.collective == Collective::kMix) {
      for (const Rank other : plan_.mixes[rank.index()]) sum += contribution_[other.index()];
    } else {
      for (int r = 0; r < plan_.contributors; ++r) {
        sum += contribution_[static_cast<std::size_t>(r)];
      }
    }
    return sum;
  }

  const Plan& plan_;
  Prng& prng_;
  std::vector<Number> contribution_;
  std::map<std::pair<int, int>, Buffer> buffers_;
  std::set<std::size_t> unsent_;
  std::vector<std::pair<std::size_t, Number>> flying_;
  std::map<std::size_t, Number> arrived_;
};

}  // namespace

std::string execute_randomly(const Plan& plan, Prng& prng) {
  return RandomExecution(plan, prng).run();
}

}  // namespace thalweg::plan
