#include <fmt/core.h>

#include <algorithm>

#include "sync/connected.h"
#include "sync/schedule.h"

namespace thalweg::sync {
namespace {

// Invariant 1.
Status check_division(const Grouping& groups, std::vector<bool>& seen) {
  seen.assign(seen.size(), false);
  std::size_t count = 0;
  for (const Group& group : groups) {
    if (group.empty()) return Error("a group is empty");
    for (const Rank worker : group) {
      if (!worker.valid() || worker.index() >= seen.size()) {
        return Error(
            fmt::format("worker {} is not allowed: 0 to {}", worker.value(), seen.size() - 1));
      }
      if (seen[worker.index()])
        return Error(fmt::format("worker {} is in two groups", worker.value()));
      seen[worker.index()] = true;
      ++count;
    }
  }
  if (count == seen.size()) return ok_status();
  const auto missing = std::ranges::find(seen, false) - seen.begin();
  return Error(fmt::format("worker {} is in no group", missing));
}

// Invariant 2.
class Crossings {
 public:
  explicit Crossings(const WorkerTree& tree)
      : tree_(tree), inside_(tree.regions().size(), 0), crossing_(tree.regions().size(), 0) {}

  Status check(const Grouping& groups) {
    std::ranges::fill(crossing_, 0);
    for (const Group& group : groups) {
      if (group.size() > 1) count(group);
    }
    const auto bad = std::ranges::find_if(crossing_, [](int workers) { return workers > 1; });
    if (bad == crossing_.end()) return ok_status();
    const WorkerRegion& region = tree_.regions()[static_cast<std::size_t>(bad - crossing_.begin())];
    return Error(fmt::format("{} workers of {} average with workers outside of it; at most 1 may",
                             *bad, region.name));
  }

 private:
  void count(const Group& group) {
    std::vector<std::size_t> touched;
    for (const Rank worker : group) {
      for (int r = tree_.region_of(worker); r >= 0;
           r = tree_.regions()[static_cast<std::size_t>(r)].parent) {
        const auto region = static_cast<std::size_t>(r);
        if (inside_[region]++ == 0) touched.push_back(region);
      }
    }
    for (const std::size_t region : touched) {
      if (inside_[region] < static_cast<int>(group.size())) crossing_[region] += inside_[region];
      inside_[region] = 0;
    }
  }

  const WorkerTree& tree_;
  std::vector<int> inside_;    // [region]: workers of the current group; 0 between groups
  std::vector<int> crossing_;  // [region]: workers that average with workers outside
};

// Invariant 3.
Status check_connected(const Schedule& schedule) {
  Connected connected(schedule.workers);
  for (const Grouping& groups : schedule.period) {
    for (const Group& group : groups) connected.join(group);
  }
  for (Rank worker(1); worker.value() < schedule.workers; ++worker) {
    if (!connected.together(Rank(0), worker)) {
      return Error(fmt::format("nothing of worker 0 ever reaches worker {}", worker.value()));
    }
  }
  return ok_status();
}

}  // namespace

Status check_schedule(const Schedule& schedule, const WorkerTree& tree) {
  if (schedule.workers != tree.worker_count()) {
    return Error(fmt::format("the schedule is for {} workers, but there are {}", schedule.workers,
                             tree.worker_count()));
  }
  const std::size_t period = schedule.period.size();
  if (period < 1 || period > static_cast<std::size_t>(kMaxSchedulePeriod)) {
    return Error(fmt::format("a period of {} iterations is not allowed: 1 to {}", period,
                             kMaxSchedulePeriod));
  }
  std::vector<bool> seen(static_cast<std::size_t>(schedule.workers));
  Crossings crossings(tree);
  for (std::size_t t = 0; t < period; ++t) {
    Status good = check_division(schedule.period[t], seen);
    if (good.ok()) good = crossings.check(schedule.period[t]);
    if (!good.ok()) return good.error().within(fmt::format("iteration {}", t));
  }
  return check_connected(schedule);
}

}  // namespace thalweg::sync
