#include <gtest/gtest.h>

#include "straggler_world.h"

namespace thalweg::proto {
namespace {

constexpr int kWorlds = 40;

TEST(StragglerWorld, stalls__same_sums_budget_kept_nothing_lost) {
  double left = 0;
  for (std::uint64_t seed = 1; seed <= kWorlds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    StragglerWorldOptions options;
    options.ranks = 3 + static_cast<int>(seed % 6);
    options.in_flight = 1 + static_cast<int>(seed % 3);
    options.bound = seed % 4 == 0 ? 0.5 : 0.1;
    StragglerWorld world(seed, options);
    world.run();
    world.check();
    left += world.left_out();
  }
  EXPECT_GT(left, 20.0);
}

TEST(StragglerWorld, bound_zero__nothing_left_out) {
  StragglerWorld world(7, {.bound = 0});
  world.run();
  world.check();
  EXPECT_EQ(world.left_out(), 0);
  EXPECT_EQ(world.exact(), 60U);
}

TEST(StragglerWorld, no_stalls__nothing_left_out) {
  StragglerWorld world(8, {.stall_chance = 0});
  world.run();
  world.check();
  EXPECT_EQ(world.left_out(), 0);
}

// With one stall of 80 ms in about three calls of 15 ms, what is left out saves most of the
// waiting.
TEST(StragglerWorld, stalls__masked) {
  StragglerWorldOptions options{.calls = 100, .bound = 0.9, .window = 100, .stall_chance = 0.02};
  StragglerWorld lossy(9, options);
  lossy.run();
  lossy.check();
  options.bound = 0;
  StragglerWorld exact(9, options);
  exact.run();
  options.stall_chance = 0;
  StragglerWorld quiet(9, options);
  quiet.run();
  const auto lost = [&](const StragglerWorld& world) { return (world.end() - quiet.end()).s(); };
  EXPECT_LT(lost(lossy) * 1.5, lost(exact));
}

TEST(StragglerWorld, rank_sleeps__others_wait_after_a_few_calls) {
  StragglerWorld world(10, {.bound = 0.95, .stall_chance = 0, .sleeps_after = 20});
  world.run();
  world.check();
  EXPECT_GE(world.furthest_behind(), 2U);
  EXPECT_LE(world.furthest_behind(), StragglerGroup::kMostBehind + 1);
}

TEST(StragglerWorld, death__fails_with_its_rank) {
  std::size_t failures = 0;
  for (std::uint64_t seed = 1; seed <= kWorlds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    StragglerWorldOptions options{.ranks = 3 + static_cast<int>(seed % 4), .bound = 0.3};
    options.dies = static_cast<int>(seed % 3);
    options.in_flight = 1 + static_cast<int>(seed % 2);
    StragglerWorld world(seed, options);
    world.run();
    world.check();
    failures += world.failures();
  }
  EXPECT_GT(failures, std::size_t{kWorlds});
}

TEST(StragglerBudget, may_leave__every_window) {
  StragglerBudget budget(0.1, 10, 100);  // 100 in 10 calls
  EXPECT_TRUE(budget.may_leave(5, 100));
  EXPECT_FALSE(budget.may_leave(5, 101));
  budget.leave(5, 60);
  EXPECT_FALSE(budget.may_leave(14, 41));
  EXPECT_TRUE(budget.may_leave(15, 100));
  budget.leave(15, 70);
  // Call 10 shares a window with 5, and another with 15.
  EXPECT_TRUE(budget.may_leave(10, 30));
  EXPECT_FALSE(budget.may_leave(10, 31));
}

TEST(StragglerLayout, of__pieces_cover_the_tensor) {
  for (const std::int64_t elements : {0, 1, 5, 1000, 123457, 1 << 22}) {
    for (const int ranks : {3, 7, 64}) {
      const StragglerLayout layout = StragglerLayout::of(elements, 4, ranks);
      EXPECT_LE(layout.segments, kStragglerMostSegments);
      std::int64_t next = 0;
      for (int owner = 0; owner < ranks; ++owner) {
        for (int s = 0; s < layout.segments; ++s) {
          EXPECT_EQ(layout.first(owner, s), next);
          next += layout.count(owner, s);
        }
      }
      EXPECT_EQ(next, elements);
    }
  }
}

}  // namespace
}  // namespace thalweg::proto
