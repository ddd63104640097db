#include "sync/sensor.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "sync/random_world.h"

namespace thalweg::sync {
namespace {

using worlds::racks_of;

// Workers that train by their sensor's decisions, on a network that is slow where the test says.
class World {
 public:
  World(WorkerTree tree, double jitter, std::uint64_t seed)
      : tree_(std::move(tree)),
        sensor_(tree_),
        schedule_(init_groups(tree_, 1)),
        random_(seed),
        jitter_(jitter) {}

  // Returns the iterations until the bottlenecks were these and stayed so, or −1.
  std::int64_t train(int iterations, const Bottlenecks& slow) {
    const std::int64_t start = iteration_;
    std::int64_t since = sensor_.bottlenecks() == slow ? 0 : -1;
    while (iteration_ < start + iterations) {
      window(slow);
      const bool right = sensor_.bottlenecks() == slow;
      if (!right) since = -1;
      if (right && since < 0) since = iteration_ - start;
    }
    return since;
  }
  // Multiplies all times by this factor.
  void set_pace(double pace) { pace_ = pace; }
  [[nodiscard]] int changes() const { return changes_; }
  [[nodiscard]] int region(const char* name) const { return *tree_.find(name); }

 private:
  void window(const Bottlenecks& slow) {
    constexpr int kWindow = 32;
    std::vector<SenseReport> reports(static_cast<std::size_t>(tree_.worker_count()));
    for (SenseReport& report : reports) report.from_iteration = iteration_;
    for (int i = 0; i < kWindow; ++i) {
      for (const Group& group : schedule_.at(iteration_ + i)) {
        const double seconds = group.size() == 1 ? 0 : time_of(group, slow);
        // Some members began before the last one and waited for it.
        for (const Rank worker : group) {
          const double waited = worker == group.back() ? 0 : random_.real() * seconds;
          reports[worker.index()].seconds.push_back(seconds == 0 ? 0 : seconds + waited);
        }
      }
    }
    iteration_ += kWindow;
    if (!sensor_.review(*merge_reports(reports, schedule_))) return;
    ++changes_;
    schedule_ = *adjust_groups(tree_, sensor_.bottlenecks(), 1);
  }

  // A ring is as slow as its slowest link; there is log-normal jitter, and one exchange in fifty
  // stalls.
  double time_of(const Group& group, const Bottlenecks& slow) {
    const auto m = static_cast<double>(group.size());
    double factor = 1;
    for (const Rank worker : group) {
      if (std::ranges::count(slow.workers, worker)) factor = 2.2;
      const bool alone = std::ranges::all_of(group, [&](Rank other) {
        return other == worker || tree_.region_of(other) != tree_.region_of(worker);
      });
      if (alone && std::ranges::count(slow.regions, tree_.region_of(worker))) factor = 2.2;
    }
    const double normal = std::sqrt(-2 * std::log(1 - random_.real())) *
                          std::cos(2 * std::numbers::pi * random_.real());
    return pace_ * 2 * (m - 1) / m * factor * std::exp(jitter_ * normal) *
           (random_.chance(0.02) ? 3 : 1);
  }

  const WorkerTree tree_;
  Sensor sensor_;
  Schedule schedule_;
  Prng random_;
  const double jitter_;
  double pace_ = 0.1;
  std::int64_t iteration_ = 0;
  int changes_ = 0;
};

TEST(Sensor, review__jitter_alone_changes_nothing) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    World world(racks_of({5, 3, 4}), 0.25, seed);
    EXPECT_EQ(world.train(10'000, {}), 0) << "seed " << seed;
    EXPECT_EQ(world.changes(), 0) << "seed " << seed;
  }
}

TEST(Sensor, review__slow_nic_is_found_and_forgotten_within_200_iterations) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    World world(racks_of({5, 3}), 0.15, seed);
    EXPECT_EQ(world.train(300, {}), 0) << "seed " << seed;
    const std::int64_t found = world.train(3000, {.regions = {}, .workers = {Rank(4)}});
    EXPECT_GT(found, 0) << "seed " << seed;
    EXPECT_LE(found, 200) << "seed " << seed;
    const std::int64_t forgotten = world.train(3000, {});
    EXPECT_GT(forgotten, 0) << "seed " << seed;
    EXPECT_LE(forgotten, 200) << "seed " << seed;
    EXPECT_EQ(world.changes(), 2) << "seed " << seed;
  }
}

// One inter-rack group cannot tell whose link is slow; the pairs that follow can.
TEST(Sensor, review__slow_rack_is_found_among_four_within_200_iterations) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    World world(racks_of({4, 4, 4, 4}), 0.15, seed);
    EXPECT_EQ(world.train(300, {}), 0) << "seed " << seed;
    const Bottlenecks slow{.regions = {world.region("rack2")}, .workers = {}};
    const std::int64_t found = world.train(3000, slow);
    EXPECT_GT(found, 0) << "seed " << seed;
    EXPECT_LE(found, 200) << "seed " << seed;
    EXPECT_LE(world.changes(), 2) << "seed " << seed;
  }
}

TEST(Sensor, review__what_slows_all_alike_is_no_links_fault) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    World world(racks_of({4, 4}), 0.15, seed);
    EXPECT_EQ(world.train(300, {}), 0) << "seed " << seed;
    world.set_pace(0.3);
    EXPECT_EQ(world.train(2000, {}), 0) << "seed " << seed;
    EXPECT_EQ(world.changes(), 0) << "seed " << seed;
    const std::int64_t found = world.train(1000, {.regions = {}, .workers = {Rank(5)}});
    EXPECT_GT(found, 0) << "seed " << seed;
    EXPECT_LE(found, 200) << "seed " << seed;
  }
}

TEST(Sensor, merge_reports__what_a_member_has_not_noted_does_not_count) {
  const Schedule schedule = init_groups(racks_of({1, 1}), 1);
  const std::vector<SenseReport> reports = {{.from_iteration = 0, .seconds = {0, 2, 0}},
                                            {.from_iteration = 0, .seconds = {3, 0, 0}}};
  const auto merged = *merge_reports(reports, schedule);
  ASSERT_EQ(merged.size(), 2u);
  EXPECT_EQ(merged[0].seconds, 3);
  EXPECT_EQ(merged[1].seconds, 2);
}

TEST(Sensor, merge_reports__names_the_rank_that_differs) {
  const Schedule schedule = init_groups(racks_of({1, 1}), 1);
  std::vector<SenseReport> reports(2, {.from_iteration = 8, .seconds = {1, 2}});
  reports[1].seconds[0] = 0.5;
  const auto merged = *merge_reports(reports, schedule);
  ASSERT_EQ(merged.size(), 2u);
  EXPECT_EQ(merged[0].seconds, 0.5);
  reports[1].from_iteration = 7;
  EXPECT_EQ(merge_reports(reports, schedule).error().message(),
            "rank 1 reports 2 iterations from 7 on, rank 0 reports 2 from 8 on");
  reports[1] = {.from_iteration = 8, .seconds = {1, -2}};
  EXPECT_EQ(merge_reports(reports, schedule).error().message(),
            "rank 1 reports a time of -2 s: 0 or more are allowed");
  reports.pop_back();
  EXPECT_EQ(merge_reports(reports, schedule).error().message(),
            "1 reports, but the schedule is for 2 workers");
}

}  // namespace
}  // namespace thalweg::sync
