#include "base/histogram.h"

#include <gtest/gtest.h>

namespace thalweg {
namespace {

TEST(Histogram, percentile__nearest_rank) {
  Histogram h;
  for (int i = 100; i >= 1; --i) h.add(i);
  EXPECT_EQ(h.percentile(0), 1);
  EXPECT_EQ(h.percentile(1), 1);
  EXPECT_EQ(h.percentile(50), 50);
  EXPECT_EQ(h.percentile(99), 99);
  EXPECT_EQ(h.percentile(99.9), 100);
  EXPECT_EQ(h.max(), 100);
  EXPECT_DOUBLE_EQ(h.mean(), 50.5);
}

TEST(Histogram, percentile__one_sample_is_every_percentile) {
  Histogram h;
  h.add(7);
  EXPECT_EQ(h.percentile(0), 7);
  EXPECT_EQ(h.percentile(50), 7);
  EXPECT_EQ(h.percentile(100), 7);
}

TEST(Histogram, merge__as_if_added_to_one) {
  Histogram a;
  Histogram b;
  a.add(3);
  EXPECT_EQ(a.max(), 3);
  b.add(1);
  b.add(2);
  a.merge(b);
  EXPECT_EQ(a.count(), 3U);
  EXPECT_EQ(a.percentile(50), 2);
}

TEST(HistogramDeathTest, no_samples__a_bug) { EXPECT_DEATH((void)Histogram().mean(), "CHECK"); }

}  // namespace
}  // namespace thalweg
