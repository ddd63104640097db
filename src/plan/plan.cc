#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/suggest.h"

namespace thalweg::plan {
namespace {

constexpr std::array<const char*, kCollectiveCount> kCollectiveNames{
    "allreduce", "reduce",  "broadcast", "reduce-scatter", "all-gather", "all-to-all",
    "gather",    "scatter", "mix"};

// Whether a chunk of this collective names a single source, and a single target.
struct Ends {
  bool one_source = false;
  bool one_target = false;
};
Ends ends_of(Collective collective) {
  switch (collective) {
    case Collective::kAllreduce:
    case Collective::kMix:
      return {};
    case Collective::kReduce:
    case Collective::kReduceScatter:
      return {.one_source = false, .one_target = true};
    case Collective::kBroadcast:
    case Collective::kAllGather:
      return {.one_source = true, .one_target = false};
    case Collective::kAllToAll:
    case Collective::kGather:
    case Collective::kScatter:
      return {.one_source = true, .one_target = true};
  }
  return {};
}

bool rank_below(Rank rank, int limit) { return rank.valid() && rank.value() < limit; }

Status check_header(const Plan& plan) {
  if (plan.ranks < 1 || plan.ranks > kMaxPlanRanks) {
    return Error(fmt::format("ranks: {} is not allowed: 1 to {}", plan.ranks, kMaxPlanRanks));
  }
  if (plan.contributors < 1 || plan.contributors > plan.ranks) {
    return Error(fmt::format("contributors: {} is not allowed: 1 to the {} ranks",
                             plan.contributors, plan.ranks));
  }
  if (plan.element_bytes < 1 || plan.element_bytes > 16) {
    return Error(fmt::format("element_bytes: {} is not allowed: 1 to 16", plan.element_bytes));
  }
  if (plan.elements < 0 ||
      plan.elements > std::numeric_limits<std::int64_t>::max() / plan.element_bytes) {
    return Error(fmt::format("elements: {} is not allowed: 0 or more, below 2^63 bytes in all",
                             plan.elements));
  }
  const bool rooted = has_root(plan.collective);
  if (rooted ? !rank_below(plan.root, plan.contributors) : plan.root.valid()) {
    return Error(rooted ? fmt::format("root: a {} needs one, 0 to {}", name_of(plan.collective),
                                      plan.contributors - 1)
                        : fmt::format("root: a {} has none", name_of(plan.collective)));
  }
  return ok_status();
}

Status check_mixes(const Plan& plan) {
  const bool mixing = plan.collective == Collective::kMix;
  if (plan.mixes.size() != (mixing ? static_cast<std::size_t>(plan.contributors) : 0)) {
    return Error(fmt::format("mixes: {} entries where {} are needed", plan.mixes.size(),
                             mixing ? plan.contributors : 0));
  }
  for (std::size_t r = 0; r < plan.mixes.size(); ++r) {
    std::vector<Rank> sorted = plan.mixes[r];
    std::sort(sorted.begin(), sorted.end());
    const bool in_range = std::all_of(sorted.begin(), sorted.end(), [&](Rank rank) {
      return rank_below(rank, plan.contributors);
    });
    if (!in_range || std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
      return Error(
          fmt::format("mixes[{}]: must name different ranks, 0 to {}", r, plan.contributors - 1));
    }
  }
  return ok_status();
}

Status check_chunk(const Plan& plan, std::size_t index) {
  const Chunk& chunk = plan.chunks[index];
  const auto bad = [&](std::string_view what) {
    return Error(fmt::format("chunks[{}]: {}", index, what));
  };
  if (chunk.offset < 0 || chunk.length < 1 || chunk.offset > plan.elements - chunk.length) {
    return bad(fmt::format("elements {} to {} do not lie within the {} of the tensor", chunk.offset,
                           static_cast<double>(chunk.offset) + static_cast<double>(chunk.length),
                           plan.elements));
  }
  const Ends ends = ends_of(plan.collective);
  const auto end_ok = [&](Rank rank, bool wanted) {
    return wanted ? rank_below(rank, plan.contributors) : !rank.valid();
  };
  if (!end_ok(chunk.source, ends.one_source) || !end_ok(chunk.target, ends.one_target)) {
    return bad(fmt::format("a chunk of {} {} source and {} target", name_of(plan.collective),
                           ends.one_source ? "names one" : "names no",
                           ends.one_target ? "names one" : "names no"));
  }
  const bool to_root =
      plan.collective == Collective::kReduce || plan.collective == Collective::kGather;
  if (plan.root.valid() && (to_root ? chunk.target : chunk.source) != plan.root) {
    return bad(fmt::format("must name the root, rank {}", plan.root.value()));
  }
  // In these collectives each rank has a share: it belongs to the target or, when gathering, to the
  // source.
  const bool shared =
      plan.collective == Collective::kReduceScatter || plan.collective == Collective::kAllGather ||
      plan.collective == Collective::kAllToAll || plan.collective == Collective::kGather ||
      plan.collective == Collective::kScatter;
  if (shared) {
    const bool gathered =
        plan.collective == Collective::kAllGather || plan.collective == Collective::kGather;
    const Rank owner = gathered ? chunk.source : chunk.target;
    const Share share = share_of(plan.elements, plan.contributors, owner.value());
    if (chunk.offset < share.offset || chunk.offset + chunk.length > share.offset + share.length) {
      return bad(fmt::format("must lie in rank {}'s share, elements {} to {}", owner.value(),
                             share.offset, share.offset + share.length));
    }
  }
  return ok_status();
}

// Checks that every element is in exactly one chunk; in an all-to-all, in one per source.
Status check_tiling(const Plan& plan) {
  std::vector<std::size_t> order(plan.chunks.size());
  std::iota(order.begin(), order.end(), 0);
  const bool per_source = plan.collective == Collective::kAllToAll;
  const auto layer = [&](std::size_t i) { return per_source ? plan.chunks[i].source.value() : 0; };
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(layer(a), plan.chunks[a].offset) < std::pair(layer(b), plan.chunks[b].offset);
  });
  std::size_t next = 0;
  const int layers = per_source ? plan.contributors : 1;
  for (int wanted = 0; wanted < layers; ++wanted) {
    std::int64_t covered = 0;
    for (; next < order.size() && layer(order[next]) == wanted; ++next) {
      const Chunk& chunk = plan.chunks[order[next]];
      if (chunk.offset != covered) break;
      covered += chunk.length;
    }
    if (covered != plan.elements) {
      return Error(fmt::format("chunks: {}elements from {} on are in no chunk, or in two",
                               per_source ? fmt::format("of rank {}, ", wanted) : "", covered));
    }
  }
  return ok_status();
}

Status check_transfers(const Plan& plan) {
  for (std::size_t i = 0; i < plan.transfers.size(); ++i) {
    const PlanTransfer& t = plan.transfers[i];
    if (!rank_below(t.source, plan.ranks) || !rank_below(t.target, plan.ranks)) {
      return Error(fmt::format("transfers[{}]: {} → {}: ranks are 0 to {}", i, t.source.value(),
                               t.target.value(), plan.ranks - 1));
    }
    if (t.source == t.target) {
      return Error(fmt::format("transfers[{}]: rank {} sends to itself", i, t.source.value()));
    }
    if (!t.chunk.valid() || t.chunk.index() >= plan.chunks.size()) {
      return Error(fmt::format("transfers[{}]: chunk {} is not one of the {}", i, t.chunk.value(),
                               plan.chunks.size()));
    }
    if (t.after < 0 || t.after > kMaxPlanVersions) {
      return Error(fmt::format("transfers[{}]: after {} is not allowed: 0 to {}", i, t.after,
                               kMaxPlanVersions));
    }
  }
  return ok_status();
}

}  // namespace

const char* name_of(Collective collective) {
  return kCollectiveNames.at(static_cast<std::size_t>(collective));
}

bool has_root(Collective collective) {
  return collective == Collective::kReduce || collective == Collective::kBroadcast ||
         collective == Collective::kGather || collective == Collective::kScatter;
}

Result<Collective> parse_collective(std::string_view name) {
  for (std::size_t i = 0; i < kCollectiveNames.size(); ++i) {
    if (name == kCollectiveNames.at(i)) return static_cast<Collective>(i);
  }
  return Error(fmt::format("'{}' is not a collective: {}{}", name,
                           fmt::join(kCollectiveNames, ", "),
                           did_you_mean(name, kCollectiveNames)));
}

Share share_of(std::int64_t elements, std::int64_t parts, std::int64_t index) {
  CHECK(parts > 0 && index >= 0 && index < parts, "part {} of {}", index, parts);
  const std::int64_t length = elements / parts;
  const std::int64_t longer = elements % parts;
  return {.offset = index * length + std::min(index, longer),
          .length = length + (index < longer ? 1 : 0)};
}

Status check_shape(const Plan& plan) {
  THALWEG_TRY_STATUS(check_header(plan));
  THALWEG_TRY_STATUS(check_mixes(plan));
  for (std::size_t i = 0; i < plan.chunks.size(); ++i) THALWEG_TRY_STATUS(check_chunk(plan, i));
  THALWEG_TRY_STATUS(check_tiling(plan));
  return check_transfers(plan);
}

}  // namespace thalweg::plan
