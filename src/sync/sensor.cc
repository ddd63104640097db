#include "sync/sensor.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <ranges>

namespace thalweg::sync {
namespace {

// Fewer slow exchanges than this in a window implicate no suspect.
constexpr int kLeastEvidence = 3;
// Shares closer than this count as equal.
constexpr double kSame = 0.02;
// The quantile of the times of a kind that counts as usual: below the median, since some are slow.
constexpr double kUsualQuantile = 0.25;

// How many times a ring of this many members moves the tensor over each link.
double ring_volume(std::size_t members) {
  const auto m = static_cast<double>(members);
  return 2 * (m - 1) / m;
}

}  // namespace

Result<std::vector<GroupTime>> merge_reports(std::span<const SenseReport> reports,
                                             const Schedule& schedule) {
  if (reports.size() != static_cast<std::size_t>(schedule.workers)) {
    return Error(fmt::format("{} reports, but the schedule is for {} workers", reports.size(),
                             schedule.workers));
  }
  const SenseReport& first = reports.front();
  for (std::size_t r = 0; r < reports.size(); ++r) {
    if (reports[r].from_iteration != first.from_iteration ||
        reports[r].seconds.size() != first.seconds.size()) {
      return Error(
          fmt::format("rank {} reports {} iterations from {} on, rank 0 reports {} from {} on", r,
                      reports[r].seconds.size(), reports[r].from_iteration, first.seconds.size(),
                      first.from_iteration));
    }
    const auto bad = std::ranges::find_if(reports[r].seconds,
                                          [](double s) { return !std::isfinite(s) || s < 0; });
    if (bad != reports[r].seconds.end()) {
      return Error(fmt::format("rank {} reports a time of {} s: 0 or more are allowed", r, *bad));
    }
  }
  std::vector<GroupTime> exchanges;
  for (std::size_t i = 0; i < first.seconds.size(); ++i) {
    for (const Group& group : schedule.at(first.from_iteration + static_cast<std::int64_t>(i))) {
      if (group.size() == 1) continue;
      const auto time = [&](Rank worker) { return reports[worker.index()].seconds[i]; };
      const auto noted = [](double seconds) { return seconds > 0; };
      auto times = group | std::views::transform(time) | std::views::filter(noted);
      if (times.empty()) continue;
      exchanges.push_back({.members = group, .seconds = std::ranges::min(times)});
    }
  }
  return exchanges;
}

Sensor::Sensor(const WorkerTree& tree, const SensingOptions& options)
    : tree_(tree),
      options_(options),
      suspects_(static_cast<std::size_t>(tree.worker_count()) + tree.regions().size()) {}

// The workers, and the regions that contain some of them but not all.
std::vector<std::size_t> Sensor::suspects_of(const Group& group) const {
  std::vector<std::size_t> result;
  std::vector<int> around;  // the regions of each worker, one after the other
  for (const Rank worker : group) {
    result.push_back(worker.index());
    for (int r = tree_.region_of(worker); r >= 0;
         r = tree_.regions()[static_cast<std::size_t>(r)].parent) {
      around.push_back(r);
    }
  }
  std::ranges::sort(around);
  for (auto it = around.begin(); it != around.end();) {
    const auto end = std::find_if(it, around.end(), [&](int r) { return r != *it; });
    if (static_cast<std::size_t>(end - it) < group.size()) {
      result.push_back(static_cast<std::size_t>(tree_.worker_count() + *it));
    }
    it = end;
  }
  return result;
}

void Sensor::mark_slow(std::span<const GroupTime> exchanges) {
  struct Observed {
    std::vector<std::size_t> suspects;
    double time;
    bool across;
  };
  std::vector<Observed> window;
  std::vector<double> times[2];
  for (const GroupTime& exchange : exchanges) {
    std::vector<std::size_t> suspects = suspects_of(exchange.members);
    const bool across = suspects.size() > exchange.members.size();
    const double time = exchange.seconds / ring_volume(exchange.members.size());
    times[across].push_back(time);
    window.push_back({std::move(suspects), time, across});
  }
  double slowdown[2] = {1, 1};
  for (std::size_t kind = 0; kind < 2; ++kind) {
    if (times[kind].empty()) continue;
    const auto place =
        static_cast<std::ptrdiff_t>(kUsualQuantile * static_cast<double>(times[kind].size()));
    std::ranges::nth_element(times[kind], times[kind].begin() + place);
    const double now = times[kind][static_cast<std::size_t>(place)];
    usual_[kind] = usual_[kind] == 0 ? now : std::min(usual_[kind], now);
    if (usual_[kind] > 0) slowdown[kind] = now / usual_[kind];
  }
  const double common = std::min(slowdown[0], slowdown[1]);
  slow_exchanges_.clear();
  for (Observed& exchange : window) {
    const bool slow = exchange.time > options_.slow_above * common * usual_[exchange.across];
    for (const std::size_t s : exchange.suspects) {
      ++suspects_[s].exchanges;
      suspects_[s].slow += slow ? 1 : 0;
    }
    if (slow) slow_exchanges_.push_back(std::move(exchange.suspects));
  }
}

void Sensor::implicate() {
  for (;;) {
    for (Suspect& suspect : suspects_) suspect.unexplained = 0;
    for (const auto& exchange : slow_exchanges_) {
      for (const std::size_t s : exchange) ++suspects_[s].unexplained;
    }
    const auto likelier = [](const Suspect& a, const Suspect& b) {
      return std::pair(a.part(), a.unexplained) < std::pair(b.part(), b.unexplained);
    };
    const auto possible = [this](const Suspect& s) {
      return s.unexplained >= kLeastEvidence && s.part() >= options_.suspect_part;
    };
    std::size_t best = suspects_.size();
    for (std::size_t s = 0; s < suspects_.size(); ++s) {
      if (possible(suspects_[s]) &&
          (best == suspects_.size() || likelier(suspects_[best], suspects_[s]))) {
        best = s;
      }
    }
    if (best == suspects_.size()) return;
    const Suspect chosen = suspects_[best];
    const auto workers = static_cast<std::size_t>(tree_.worker_count());
    for (std::size_t s = 0; s < suspects_.size(); ++s) {
      const bool alike = (s < workers) == (best < workers) && possible(suspects_[s]) &&
                         suspects_[s].unexplained == chosen.unexplained &&
                         chosen.part() - suspects_[s].part() < kSame;
      if (alike) suspects_[s].implicated = true;
    }
    std::erase_if(slow_exchanges_, [this](const std::vector<std::size_t>& exchange) {
      return std::ranges::any_of(exchange,
                                 [this](std::size_t s) { return suspects_[s].implicated; });
    });
  }
}

bool Sensor::judge() {
  bool changed = false;
  for (Suspect& suspect : suspects_) {
    const bool against = suspect.guilty ? suspect.exchanges >= kLeastEvidence &&
                                              suspect.part() < options_.acquit_part
                                        : suspect.implicated;
    suspect.streak = against ? suspect.streak + 1 : 0;
    if (suspect.streak == options_.windows) {
      suspect.guilty = !suspect.guilty;
      suspect.streak = 0;
      changed = true;
    }
    suspect.exchanges = 0;
    suspect.slow = 0;
    suspect.implicated = false;
  }
  return changed;
}

bool Sensor::review(std::span<const GroupTime> exchanges) {
  mark_slow(exchanges);
  implicate();
  if (!judge()) return false;
  bottlenecks_ = {};
  const auto workers = static_cast<std::size_t>(tree_.worker_count());
  for (std::size_t s = 0; s < suspects_.size(); ++s) {
    if (!suspects_[s].guilty) continue;
    if (s < workers) {
      bottlenecks_.workers.emplace_back(static_cast<std::int32_t>(s));
    } else {
      bottlenecks_.regions.push_back(static_cast<int>(s - workers));
    }
  }
  return true;
}

}  // namespace thalweg::sync
