#include "base/bitmap.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "base/prng.h"

namespace thalweg {
namespace {

TEST(Bitmap, empty__full_and_nothing_missing) {
  const Bitmap bitmap(0);
  EXPECT_TRUE(bitmap.full());
  EXPECT_TRUE(bitmap.missing_run(0).empty());
  EXPECT_EQ(bitmap.rank(0), 0U);
}

TEST(Bitmap, set__tells_whether_it_was_new) {
  Bitmap bitmap(10);
  EXPECT_TRUE(bitmap.set(3));
  EXPECT_FALSE(bitmap.set(3));
  EXPECT_EQ(bitmap.count(), 1U);
  EXPECT_TRUE(bitmap.clear(3));
  EXPECT_FALSE(bitmap.clear(3));
  EXPECT_EQ(bitmap.count(), 0U);
}

TEST(Bitmap, missing_run__across_blocks) {
  Bitmap bitmap(2000);
  bitmap.set(0);
  bitmap.set(1999);
  EXPECT_EQ(bitmap.missing_run(0), (Bitmap::Run{1, 1999}));
  EXPECT_TRUE(bitmap.missing_run(1999).empty());
}

TEST(Bitmap, clear_all__as_new) {
  Bitmap bitmap(700);
  for (std::size_t i = 0; i < 700; i += 3) bitmap.set(i);
  bitmap.clear_all();
  EXPECT_EQ(bitmap.count(), 0U);
  EXPECT_EQ(bitmap.missing_run(0), (Bitmap::Run{0, 700}));
}

// Compares every query with the obvious implementation, on random sets of many sizes and densities.
TEST(Bitmap, random__agrees_with_a_vector_of_bool) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Prng prng(seed);
    const std::size_t size = prng.below(3000);
    const double density = prng.real() < 0.3 ? 0.999 : prng.real();
    Bitmap bitmap(size);
    std::vector<bool> model(size);
    for (std::size_t i = 0; i < size; ++i) {
      if (!prng.chance(density)) continue;
      bitmap.set(i);
      model[i] = true;
    }
    // next[wanted][i]: the first index at or after i whose bit is `wanted`.
    std::array<std::vector<std::size_t>, 2> next;
    for (const std::size_t wanted : {0U, 1U}) {
      next.at(wanted).assign(size + 1, size);
      for (std::size_t i = size; i-- > 0;) {
        next.at(wanted)[i] = model[i] == (wanted == 1) ? i : next.at(wanted)[i + 1];
      }
    }
    std::size_t rank = 0;
    for (std::size_t i = 0; i <= size; ++i) {
      const std::size_t missing = next[0][i];
      ASSERT_EQ(bitmap.rank(i), rank) << "at " << i;
      ASSERT_EQ(bitmap.next_missing(i), missing) << "from " << i;
      ASSERT_EQ(bitmap.missing_run(i), (Bitmap::Run{missing, next[1][missing]})) << "from " << i;
      if (i < size && model[i]) ++rank;
    }
    EXPECT_EQ(bitmap.count(), bitmap.rank(size));
  }
}

}  // namespace
}  // namespace thalweg
