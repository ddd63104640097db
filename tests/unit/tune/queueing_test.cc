#include "tune/queueing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "base/prng.h"

namespace thalweg::tune {
namespace {

// The stationary distribution of M/M/1/m by its balance equations: p_k ∝ ρ^k.
double loss_by_balance(double utilization, int room) {
  double total = 0;
  double last = 1;
  for (int k = 0; k <= room; ++k, last *= utilization) total += last;
  return last / utilization / total;
}

TEST(Queueing, log_loss__is_the_stationary_probability_of_a_full_queue) {
  for (const double utilization : {0.01, 0.3, 0.5, 0.9, 0.99, 0.999999}) {
    for (const int room : {0, 1, 2, 7, 40}) {
      EXPECT_NEAR(std::exp(log_loss(utilization, room)), loss_by_balance(utilization, room),
                  1e-12 * (1 + room))
          << utilization << ' ' << room;
    }
  }
}

TEST(Queueing, log_loss__known_values) {
  EXPECT_DOUBLE_EQ(log_loss(0.7, 0), 0);                         // without room everything is lost
  EXPECT_DOUBLE_EQ(std::exp(log_loss(0.5, 1)), 0.5 / 1.5);       // Erlang B with one server
  EXPECT_NEAR(std::exp(log_loss(1 - 1e-9, 9)), 1.0 / 10, 1e-6);  // ρ → 1: 1/(m + 1)
  EXPECT_EQ(log_loss(0, 3), -std::numeric_limits<double>::infinity());
  EXPECT_NEAR(log_loss(0.1, 5000), 5000 * std::log(0.1) + std::log(0.9), 1e-6);
}

TEST(Queueing, log_loss_slope__is_the_derivative) {
  Prng prng(1);
  for (int i = 0; i < 1000; ++i) {
    const double utilization = 0.01 + 0.98 * prng.real();
    const double room = 1 + 30 * prng.real();
    SCOPED_TRACE(testing::Message() << "ρ = " << utilization << ", m = " << room);
    constexpr double kStep = 1e-5;
    const double difference = (std::exp(log_loss(utilization, room - kStep)) -
                               std::exp(log_loss(utilization, room + kStep))) /
                              (2 * kStep);
    const double slope = std::exp(log_loss_slope(utilization, room));
    EXPECT_NEAR(slope, difference, 1e-5 * slope + 1e-10);
  }
}

TEST(Queueing, log_loss_slope__falls_so_the_loss_is_convex) {
  for (const double utilization : {0.001, 0.2, 0.6, 0.95, 0.9999}) {
    for (double room = 0; room < 60; room += 0.25) {
      EXPECT_GT(log_loss_slope(utilization, room), log_loss_slope(utilization, room + 0.25))
          << utilization << ' ' << room;
    }
  }
}

TEST(Queueing, queue_utilizations__product_form_of_the_paper) {
  const std::vector<double> shares{0.1, 0.4, 0.2, 0.3};
  const double load = 0.85;
  const std::vector<double> utilizations = queue_utilizations(shares, load);
  double service = 1;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    EXPECT_NEAR(utilizations[i], load * shares[i] / service, 1e-12);
    service *= 1 - utilizations[i];
  }
  EXPECT_NEAR(service, 1 - load, 1e-12);  // capacity that no queue uses
}

TEST(Queueing, queue_utilizations__below_one_for_any_shares) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Prng prng(seed);
    std::vector<double> shares(1 + prng.below(8));
    for (double& share : shares) share = prng.real();
    const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
    for (double& share : shares) share /= total;
    for (const double utilization : queue_utilizations(shares, 0.9999)) {
      EXPECT_GE(utilization, 0);
      EXPECT_LT(utilization, 1);
    }
  }
}

}  // namespace
}  // namespace thalweg::tune
