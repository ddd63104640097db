#include "tune/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace thalweg::tune {
namespace {

std::string error_of(std::string_view text) {
  const auto weights = weights_from_yaml(text, "w.yaml");
  return weights.ok() ? std::string() : weights.error().message();
}

TEST(Weights, from_yaml__defaults_and_overrides) {
  const auto weights = weights_from_yaml(
      "front: 1\nlarge: 20\nexponent: 2\nlayers:\n  - {name: conv1, weight: 3.5}\n", "w.yaml");
  ASSERT_TRUE(weights.ok()) << weights.error().message();
  EXPECT_EQ(weights->front, 1);
  EXPECT_EQ(weights->large, 20);
  EXPECT_EQ(weights->exponent, 2);
  EXPECT_EQ(weights->back, ConvergenceWeights().back);
  EXPECT_EQ(weights->layers.at("conv1"), 3.5);
}

TEST(Weights, from_yaml__errors_name_the_line_and_what_is_allowed) {
  EXPECT_NE(error_of("front: 1\nbakc: 2\n").find("w.yaml: line 2"), std::string::npos);
  EXPECT_NE(error_of("small: 0\n").find("small"), std::string::npos);
  EXPECT_NE(error_of("small: many\n").find("line 1"), std::string::npos);
  EXPECT_NE(error_of("exponent: 0.5\n").find("exponent"), std::string::npos);
  EXPECT_NE(error_of("layers:\n  - {name: a, weight: 1}\n  - {name: a, weight: 2}\n")
                .find("'a' is given twice"),
            std::string::npos);
  EXPECT_NE(error_of("layers: 3\n").find("layers"), std::string::npos);
  EXPECT_NE(error_of("layers:\n  - {name: a}\n").find("weight"), std::string::npos);
}

TEST(Weights, queue_loads__shares_and_sums) {
  const std::vector<TunedLayer> layers{
      {"a", Bytes(10)}, {"b", Bytes(20)}, {"c", Bytes(30)}, {"d", Bytes(40)}};
  const ConvergenceWeights weights{
      .front = 1, .back = 4, .small = 1, .large = 10, .exponent = 1, .layers = {}};
  const auto loads = queue_loads(layers, 2, weights);
  ASSERT_TRUE(loads.ok());
  EXPECT_EQ(loads->first, (std::vector<std::size_t>{0, 2, 4}));
  EXPECT_DOUBLE_EQ(loads->shares[0], 0.3);
  EXPECT_DOUBLE_EQ(loads->shares[1], 0.7);
  // Layers weigh 1, 2, 3, 4.
  EXPECT_DOUBLE_EQ(loads->weights[0].small, 3.0 / 4);
  EXPECT_DOUBLE_EQ(loads->weights[1].small, 7.0 / 4);
  EXPECT_DOUBLE_EQ(loads->weights[1].large, 70.0 / 4);
}

TEST(Weights, queue_loads__fewer_layers_than_queues) {
  const std::vector<TunedLayer> layers{{"a", Bytes(10)}, {"b", Bytes(20)}, {"c", Bytes(30)}};
  const auto loads = queue_loads(layers, 7, {});
  ASSERT_TRUE(loads.ok());
  EXPECT_NEAR(std::accumulate(loads->shares.begin(), loads->shares.end(), 0.0), 1, 1e-12);
  EXPECT_EQ(std::ranges::count(loads->shares, 0.0), 4);
  EXPECT_EQ(loads->first.front(), 0);
  EXPECT_EQ(loads->first.back(), 3);
  EXPECT_TRUE(std::ranges::is_sorted(loads->first));
  ThresholdProblem problem{.shares = loads->shares, .weights = loads->weights};
  problem.buffer = 100;
  EXPECT_TRUE(solve_thresholds(problem).ok());
}

TEST(Weights, queue_loads__unknown_layer) {
  const std::vector<TunedLayer> layers{{"a", Bytes(10)}};
  ConvergenceWeights weights;
  weights.layers["b"] = 1;
  const auto loads = queue_loads(layers, 7, weights);
  ASSERT_FALSE(loads.ok());
  EXPECT_NE(loads.error().message().find("'b'"), std::string::npos);
}

}  // namespace
}  // namespace thalweg::tune
