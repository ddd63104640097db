// DS-Sync's schedule: which workers average with which at iteration t (DS-Sync, section III-B).
//
// How it divides. Every region but the root sends one of its members up, in turns: that member
// represents the region among its parent's members. The members that stay average in the region. In
// the plain case, racks under one root, these are the paper's intra-rack groups and its inter-rack
// group of representatives.
//
// How it avoids bottlenecks. A member is slow if its NIC is slow (a worker), if the link that
// leaves it is slow (a region), or if the worker that represents it is slow for either reason. A
// slow member is not sent up if there are two members that are not slow. Where members average and
// some are slow, each slow one is paired with one that is not, in turns, and the others form one
// large group, the region's hub; slow members left without a partner are paired with one another.
// So contention between racks divides the inter-rack group (section III-B2), and contention at a
// NIC divides the intra-rack one (III-B3).
//
// How it shuffles. In the first block of iterations every region goes through its members in order.
// If that does not connect all workers (racks of two that all turn in step), further blocks follow,
// in orders drawn from the seed, until it does.
//
// Invariants (check_schedule proves them; every schedule made here has passed):
// 1. In every iteration each worker is in exactly one group.
// 2. In every iteration at most one worker of a region averages with workers outside of it, so that
//    only one connection of ours crosses the link that leaves the region.
// 3. The groups of one period, taken as edges, connect all workers. An iteration replaces every
//    worker's model by its group's mean, which is an orthogonal projection: symmetric, doubly
//    stochastic, and shrinking whatever it does not keep. What a whole period does not shrink is
//    kept by each of its iterations, so it is the same in all groups, hence the same at all
//    workers: on everything else the period's product has norm below 1, and so has its second
//    eigenvalue.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sync/worker_tree.h"

namespace thalweg::sync {

inline constexpr int kMaxSchedulePeriod = 65'536;  // iterations

using Group = std::vector<Rank>;      // in ascending order
using Grouping = std::vector<Group>;  // ordered by first worker

struct Schedule {
  int workers = 0;
  std::uint64_t seed = 0;
  std::vector<Grouping> period;  // iteration t averages by period[t % period.size()]

  [[nodiscard]] const Grouping& at(std::int64_t iteration) const {
    return period[static_cast<std::size_t>(iteration) % period.size()];
  }
  // The workers that average with this worker at that iteration, itself included.
  [[nodiscard]] const Group& group_of(std::int64_t iteration, Rank worker) const;
  // Equal schedules have equal digests; different ones collide with probability 2^-64.
  [[nodiscard]] std::uint64_t digest() const;
  bool operator==(const Schedule&) const = default;
};

// Where the network is slow. Both lists are ascending and without duplicates.
struct Bottlenecks {
  std::vector<int> regions;   // regions of a WorkerTree whose links to the outside are contended
  std::vector<Rank> workers;  // workers whose NICs are contended
  [[nodiscard]] bool empty() const { return regions.empty() && workers.empty(); }
  bool operator==(const Bottlenecks&) const = default;
};

// The paper's initGroups: it considers only the topology.
Schedule init_groups(const WorkerTree& tree, std::uint64_t seed);
// The paper's adjustGroups. Fails if a bottleneck is not in the tree, or is named twice.
Result<Schedule> adjust_groups(const WorkerTree& tree, const Bottlenecks& bottlenecks,
                               std::uint64_t seed);

// Proves the invariants. An error names the iteration and the workers or the region.
Status check_schedule(const Schedule& schedule, const WorkerTree& tree);

// A rank's summary of its schedule, compared before use to ensure that all ranks have the same.
struct ScheduleWord {
  int workers = 0;
  std::uint64_t seed = 0;
  std::uint64_t digest = 0;
  std::int64_t from_iteration = 0;
  bool operator==(const ScheduleWord&) const = default;
};
// words[r] is rank r's. An error names the first rank that differs from rank 0, and how.
Status check_words(std::span<const ScheduleWord> words);

}  // namespace thalweg::sync
