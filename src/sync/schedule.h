// DS-Sync's schedule: at iteration t, which workers average with whom (DS-Sync, section III-B).
//
// How it divides. Every region but the root sends one of its members up, by turns: that member is
// the region's representative among its parent's members. The members that stay average in the
// region. In the plain case, racks under one root, these are the paper's intra-rack groups and its
// inter-rack group of representatives.
//
// How it goes round bottlenecks. A member is slow if its NIC is (a worker), if the link that leaves
// it is (a region), or if the worker that stands for it is slow for either reason. A slow member is
// not sent up as long as there are two that are not slow. Where members average and some are slow,
// each slow one is paired with one that is not, by turns, and the others are one large group, the
// region's hub; slow ones that find no partner are paired with one another. So contention between
// racks divides the inter-rack group (section III-B2), contention at a NIC the intra-rack one
// (III-B3).
//
// How it shuffles. In the first block of iterations every region goes through its members in order.
// Where that does not bring all workers together (racks of two that all turn in step), further
// blocks follow in orders drawn from the seed until it does.
//
// Invariants (check_schedule proves them; every schedule made here has passed):
// 1. In every iteration each worker is in exactly one group.
// 2. In every iteration at most one worker of a region averages with workers outside of it, so that
//    one connection of ours crosses the link that leaves the region.
// 3. The groups of one period, taken as edges, connect all workers. An iteration replaces every
//    worker's model by its group's mean, which is an orthogonal projection: symmetric, doubly
//    stochastic, and shrinking whatever it does not keep. What a whole period does not shrink is
//    kept by each of its iterations, so it is the same in all groups, hence the same at all
//    workers: on all else the period's product has norm below 1, and so has its second eigenvalue.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sync/worker_tree.h"

namespace thalweg {

inline constexpr int kMaxSchedulePeriod = 65'536;  // iterations

using Group = std::vector<Rank>;      // ascending
using Grouping = std::vector<Group>;  // by first worker

struct Schedule {
  int workers = 0;
  std::uint64_t seed = 0;
  std::vector<Grouping> period;  // iteration t averages by period[t % period.size()]

  [[nodiscard]] const Grouping& at(std::int64_t iteration) const {
    return period[static_cast<std::size_t>(iteration) % period.size()];
  }
  // Those that average with the worker at that iteration, itself among them.
  [[nodiscard]] const Group& group_of(std::int64_t iteration, Rank worker) const;
  // Equal for equal schedules, and for others with a chance of 2^-64.
  [[nodiscard]] std::uint64_t digest() const;
  bool operator==(const Schedule&) const = default;
};

// Where the network is slow. Both ascending, none twice.
struct Bottlenecks {
  std::vector<int> regions;   // of a WorkerTree, whose links to the outside are contended
  std::vector<Rank> workers;  // whose NICs are
  [[nodiscard]] bool empty() const { return regions.empty() && workers.empty(); }
  bool operator==(const Bottlenecks&) const = default;
};

// The paper's initGroups: only the topology counts.
Schedule init_groups(const WorkerTree& tree, std::uint64_t seed);
// The paper's adjustGroups. An error if a bottleneck is not in the tree, or named twice.
Result<Schedule> adjust_groups(const WorkerTree& tree, const Bottlenecks& bottlenecks,
                               std::uint64_t seed);

// Proves the invariants. The error names the iteration and the workers or the region.
Status check_schedule(const Schedule& schedule, const WorkerTree& tree);

// What a rank says of its schedule before it is used, so that all have the same.
struct ScheduleWord {
  int workers = 0;
  std::uint64_t seed = 0;
  std::uint64_t digest = 0;
  std::int64_t from_iteration = 0;
  bool operator==(const ScheduleWord&) const = default;
};
// words[r] is rank r's. The error names the first rank that differs from rank 0, and in what.
Status check_words(std::span<const ScheduleWord> words);

}  // namespace thalweg
