#include "base/prng.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <set>
#include <vector>

namespace thalweg {
namespace {

TEST(Prng, same_seed__same_sequence) {
  Prng a(42);
  Prng b(42);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(a.next(), b.next());
}

TEST(Prng, known_sequence__never_changes) {
  // These values are pinned: recorded runs and golden files replay only if the sequence stays.
  Prng prng(1);
  EXPECT_EQ(prng.next(), 12966619160104079557ULL);
  EXPECT_EQ(prng.next(), 9600361134598540522ULL);
}

TEST(Prng, below__uniform_and_in_range) {
  Prng prng(7);
  std::array<int, 6> seen{};
  for (int i = 0; i < 60000; ++i) ++seen.at(static_cast<std::size_t>(prng.below(6)));
  for (const int count : seen) EXPECT_NEAR(count, 10000, 500);
}

TEST(Prng, real__in_unit_interval_with_mean_half) {
  Prng prng(9);
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double x = prng.real();
    ASSERT_GE(x, 0);
    ASSERT_LT(x, 1);
    sum += x;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.02);
}

TEST(Prng, fork__streams_differ_and_leave_the_parent_alone) {
  Prng parent(3);
  Prng untouched(3);
  Prng first = parent.fork(0);
  Prng second = parent.fork(1);
  EXPECT_NE(first.next(), second.next());
  EXPECT_EQ(parent.next(), untouched.next());
}

TEST(Prng, shuffle__a_permutation) {
  Prng prng(5);
  std::vector<int> items(100);
  std::iota(items.begin(), items.end(), 0);
  prng.shuffle(std::span<int>(items));
  EXPECT_EQ(std::set<int>(items.begin(), items.end()).size(), 100U);
  EXPECT_FALSE(std::is_sorted(items.begin(), items.end()));
}

}  // namespace
}  // namespace thalweg
