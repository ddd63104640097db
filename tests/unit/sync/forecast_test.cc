#include "sync/forecast.h"

#include <gtest/gtest.h>

namespace thalweg::sync {
namespace {

constexpr Duration ms(int count) { return Duration::milliseconds(count); }

// Two layers; the back one has three quarters of the bytes.
const std::vector<LayerCost> kLayers{{.size = Bytes(100), .backward = ms(20)},
                                     {.size = Bytes(300), .backward = ms(10)}};

TEST(Forecast, iteration_time__overlaps_what_backward_lets_go) {
  // Computing takes 40 ms; the back layer leaves at 20 ms and takes 6, the front one leaves at 40
  // and takes 2.
  EXPECT_EQ(iteration_time(kLayers, ms(10), ms(8)), ms(42));
  // The back layer takes 60 ms from 20 ms on, and the front one 20 ms more after it.
  EXPECT_EQ(iteration_time(kLayers, ms(10), ms(80)), ms(100));
  EXPECT_EQ(iteration_time(kLayers, ms(10), Duration()), ms(40));
}

TEST(Forecast, choose__the_quickest_that_nothing_speaks_against) {
  const std::vector<Candidate> candidates{
      {.name = "bsp", .iteration = ms(30), .iterations_to_consensus = 1},
      {.name = "late", .iteration = ms(20), .iterations_to_consensus = 100},
      {.name = "never", .iteration = ms(15), .iterations_to_consensus = 0},
      {.name = "stale", .iteration = ms(10), .iterations_to_consensus = 1, .drawback = "is stale"}};
  const Verdict verdict = choose(candidates, 50);
  EXPECT_EQ(verdict.best, 0U);
  EXPECT_NE(verdict.reason.find("stale would take 10.0 ms, but it is stale"), std::string::npos)
      << verdict.reason;
  EXPECT_EQ(choose(candidates, 100).best, 1U);
  EXPECT_FALSE(choose(std::span(candidates).subspan(2), 100).best);
}

}  // namespace
}  // namespace thalweg::sync
