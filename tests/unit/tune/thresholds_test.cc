#include "tune/thresholds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/prng.h"
#include "tune/queueing.h"

namespace thalweg::tune {
namespace {

ThresholdProblem even_problem(std::size_t queues, double buffer) {
  ThresholdProblem problem;
  problem.shares.assign(queues, 1 / static_cast<double>(queues));
  problem.weights.assign(queues, {.small = 1, .large = 8});
  problem.buffer = buffer;
  return problem;
}

ThresholdProblem random_problem(Prng& prng) {
  ThresholdProblem problem;
  const std::size_t queues = 1 + prng.below(7);
  for (std::size_t i = 0; i < queues; ++i) {
    problem.shares.push_back(0.01 + prng.real());
    problem.weights.push_back(
        {.small = std::exp(6 * prng.real() - 3), .large = std::exp(6 * prng.real() - 3)});
  }
  const double total = std::accumulate(problem.shares.begin(), problem.shares.end(), 0.0);
  for (double& share : problem.shares) share /= total;
  problem.load = 0.05 + 0.94 * prng.real();
  problem.small_fraction = 0.1 + 0.8 * prng.real();
  problem.exponent = prng.chance(0.5) ? 1 : 1 + 2 * prng.real();
  problem.buffer = least_buffer(queues, problem.small_fraction) * (1 + 20 * prng.real());
  return problem;
}

std::vector<QueueRooms> rooms_of(const ThresholdSolution& solution) {
  std::vector<QueueRooms> rooms;
  for (const QueueThresholds& q : solution.queues) rooms.push_back({q.small_room, q.large_room});
  return rooms;
}

double total_of(const std::vector<QueueRooms>& rooms) {
  double total = 0;
  for (const QueueRooms& room : rooms) total += room.small + room.large;
  return total;
}

// A feasible point: random rooms above the least, scaled to use the whole buffer.
std::vector<QueueRooms> random_rooms(const ThresholdProblem& problem, Prng& prng) {
  const double ratio = (1 - problem.small_fraction) / problem.small_fraction;
  std::vector<QueueRooms> rooms(problem.shares.size());
  std::vector<QueueRooms> extra(rooms.size());
  for (std::size_t i = 0; i < rooms.size(); ++i) {
    rooms[i] = {.small = 1, .large = std::max(1.0, ratio)};
    extra[i].small = prng.real();
    extra[i].large = ratio * extra[i].small + (prng.chance(0.3) ? 0 : prng.real());
  }
  const double scale = (problem.buffer - total_of(rooms)) / total_of(extra);
  for (std::size_t i = 0; i < rooms.size(); ++i) {
    rooms[i].small += scale * extra[i].small;
    rooms[i].large += scale * extra[i].large;
  }
  return rooms;
}

TEST(Thresholds, solve__feasible_and_uses_the_buffer) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Prng prng(seed);
    const ThresholdProblem problem = random_problem(prng);
    const auto solution = solve_thresholds(problem);
    ASSERT_TRUE(solution.ok()) << solution.error().message();
    const double total = total_of(rooms_of(*solution));
    EXPECT_LE(total, problem.buffer * (1 + 1e-12));
    EXPECT_GE(total, problem.buffer * (1 - 1e-9));
    for (const QueueThresholds& q : solution->queues) {
      EXPECT_GE(q.small_room, 1);
      EXPECT_GE(q.large_room, 1);
      EXPECT_LE(q.threshold, q.limit * (1 + 1e-12));
      EXPECT_DOUBLE_EQ(q.threshold, q.small_room / problem.small_fraction);
      EXPECT_DOUBLE_EQ(q.limit, q.small_room + q.large_room);
    }
  }
}

TEST(Thresholds, solve__not_worse_than_random_feasible_points) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Prng prng(seed);
    const ThresholdProblem problem = random_problem(prng);
    const auto solution = solve_thresholds(problem);
    ASSERT_TRUE(solution.ok());
    for (int i = 0; i < 500; ++i) {
      EXPECT_LE(solution->log_cost, log_cost_of(problem, random_rooms(problem, prng)) + 1e-9);
    }
  }
}

// At the optimum, moving a little room from one queue to another gains nothing.
TEST(Thresholds, solve__not_worse_than_its_neighbours) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Prng prng(seed);
    const ThresholdProblem problem = random_problem(prng);
    const double ratio = (1 - problem.small_fraction) / problem.small_fraction;
    const auto solution = solve_thresholds(problem);
    ASSERT_TRUE(solution.ok());
    const std::vector<QueueRooms> best = rooms_of(*solution);
    for (int i = 0; i < 200; ++i) {
      std::vector<QueueRooms> near = best;
      const auto part = [&](std::size_t k) -> double& {
        return k % 2 == 0 ? near[k / 2].small : near[k / 2].large;
      };
      const double moved = 0.1 * prng.real();
      part(prng.below(2 * near.size())) += moved;
      part(prng.below(2 * near.size())) -= moved;
      const bool feasible = std::ranges::all_of(near, [&](const QueueRooms& r) {
        return r.small >= 1 && r.large >= 1 && r.large >= ratio * r.small;
      });
      if (!feasible) continue;
      EXPECT_LE(solution->log_cost, log_cost_of(problem, near) + 1e-9);
    }
  }
}

TEST(Thresholds, solve__one_queue_of_two_equal_halves_is_split_evenly) {
  ThresholdProblem problem = even_problem(1, 60);
  problem.weights[0] = {.small = 3, .large = 3};
  const auto solution = solve_thresholds(problem);
  ASSERT_TRUE(solution.ok());
  EXPECT_NEAR(solution->queues[0].small_room, 30, 1e-6);
  EXPECT_NEAR(solution->queues[0].large_room, 30, 1e-6);
  EXPECT_NEAR(solution->queues[0].threshold, 60, 1e-6);
}

// For a large buffer the loss is (1 − ρ)·ρ^m, and equal savings mean L' − S' = ln(f^L / f^S) /
// ln(1/ρ).
TEST(Thresholds, solve__large_buffer_has_the_closed_form) {
  ThresholdProblem problem = even_problem(1, 2000);
  problem.load = 0.5;
  problem.weights[0] = {.small = 1, .large = 64};
  const auto solution = solve_thresholds(problem);
  ASSERT_TRUE(solution.ok());
  const QueueThresholds& q = solution->queues[0];
  EXPECT_NEAR(q.large_room - q.small_room, std::log(64) / std::log(2), 1e-5);
  EXPECT_NEAR(q.large_room + q.small_room, 2000, 1e-6);
}

// If small gradients weigh more than large ones, S_i = L_i binds.
TEST(Thresholds, solve__threshold_never_above_the_limit) {
  ThresholdProblem problem = even_problem(3, 90);
  for (LossWeights& weights : problem.weights) weights = {.small = 1000, .large = 1};
  const auto solution = solve_thresholds(problem);
  ASSERT_TRUE(solution.ok());
  for (const QueueThresholds& q : solution->queues) {
    EXPECT_NEAR(q.threshold, q.limit, 1e-9 * q.limit);
  }
}

TEST(Thresholds, solve__back_layers_have_the_higher_thresholds) {
  ThresholdProblem problem = even_problem(7, 341);
  for (std::size_t i = 0; i < 7; ++i) {
    problem.weights[i] = {.small = 1.0 + static_cast<double>(i),
                          .large = 10.0 * (1.0 + static_cast<double>(i))};
  }
  const auto solution = solve_thresholds(problem);
  ASSERT_TRUE(solution.ok());
  for (std::size_t i = 1; i < 7; ++i) {
    EXPECT_GT(solution->queues[i].threshold, solution->queues[i - 1].threshold);
    EXPECT_GT(solution->queues[i].limit, solution->queues[i - 1].limit);
  }
}

TEST(Thresholds, solve__more_buffer_never_costs_and_no_threshold_falls) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Prng prng(seed);
    ThresholdProblem problem = random_problem(prng);
    const auto less = solve_thresholds(problem);
    problem.buffer *= 1.5;
    const auto more = solve_thresholds(problem);
    ASSERT_TRUE(less.ok() && more.ok());
    EXPECT_LT(more->log_cost, less->log_cost);
    EXPECT_LE(more->log_price, less->log_price);
    for (std::size_t i = 0; i < problem.shares.size(); ++i) {
      EXPECT_GE(more->queues[i].threshold, less->queues[i].threshold * (1 - 1e-9));
      EXPECT_GE(more->queues[i].limit, less->queues[i].limit * (1 - 1e-9));
    }
  }
}

TEST(Thresholds, solve__more_load_costs_more) {
  ThresholdProblem problem = even_problem(7, 341);
  double before = -std::numeric_limits<double>::infinity();
  for (const double load : {0.2, 0.5, 0.8, 0.9, 0.99}) {
    problem.load = load;
    const auto solution = solve_thresholds(problem);
    ASSERT_TRUE(solution.ok());
    EXPECT_GT(solution->log_cost, before);
    before = solution->log_cost;
  }
}

TEST(Thresholds, solve__more_weight_never_lowers_the_threshold) {
  ThresholdProblem problem = even_problem(4, 100);
  const auto before = solve_thresholds(problem);
  problem.weights[2].small *= 5;
  const auto after = solve_thresholds(problem);
  ASSERT_TRUE(before.ok() && after.ok());
  EXPECT_GT(after->queues[2].threshold, before->queues[2].threshold);
  EXPECT_LT(after->queues[1].threshold, before->queues[1].threshold);
}

TEST(Thresholds, solve__queue_without_traffic_gets_the_least) {
  ThresholdProblem problem = even_problem(3, 60);
  problem.shares = {0.5, 0, 0.5};
  const auto solution = solve_thresholds(problem);
  ASSERT_TRUE(solution.ok());
  EXPECT_EQ(solution->queues[1].small_room, 1);
  EXPECT_EQ(solution->queues[1].large_room, 1);
  EXPECT_NEAR(total_of(rooms_of(*solution)), 60, 1e-6);
}

TEST(Thresholds, solve__refuses_what_makes_no_sense) {
  const auto error_of = [](auto change) {
    ThresholdProblem problem = even_problem(3, 60);
    change(problem);
    const auto solution = solve_thresholds(problem);
    return solution.ok() ? std::string() : solution.error().message();
  };
  const double nan = std::nan("");
  EXPECT_EQ(error_of([](auto&) {}), "");
  EXPECT_NE(error_of([](auto& p) { p.load = 1; }).find("load 1 "), std::string::npos);
  EXPECT_NE(error_of([](auto& p) { p.load = 0; }).find("load"), std::string::npos);
  EXPECT_NE(error_of([&](auto& p) { p.load = nan; }).find("load"), std::string::npos);
  EXPECT_NE(error_of([](auto& p) { p.small_fraction = 1; }).find("small"), std::string::npos);
  EXPECT_NE(error_of([](auto& p) { p.exponent = 0.5; }).find("exponent"), std::string::npos);
  EXPECT_NE(error_of([](auto& p) { p.weights[1].large = 0; }).find("weight"), std::string::npos);
  EXPECT_NE(error_of([](auto& p) { p.shares[1] = 0.9; }).find("shares"), std::string::npos);
  EXPECT_NE(error_of([](auto& p) { p.buffer = 5; }).find("at least 6"), std::string::npos);
  EXPECT_NE(error_of([&](auto& p) { p.buffer = nan; }).find("buffer"), std::string::npos);
}

TEST(Thresholds, fit_arithmetic__finds_a_sequence) {
  const ArithmeticFit fit = fit_arithmetic({10, 12, 14, 16});
  EXPECT_NEAR(fit.first, 10, 1e-9);
  EXPECT_NEAR(fit.step, 0.2, 1e-9);
  EXPECT_NEAR(fit.worst_relative_error, 0, 1e-9);
}

TEST(Thresholds, fit_arithmetic__never_falls_and_never_starts_at_nothing) {
  const ArithmeticFit falling = fit_arithmetic({30, 20, 10});
  EXPECT_EQ(falling.step, 0);
  EXPECT_NEAR(falling.first, 20, 1e-9);
  const ArithmeticFit steep = fit_arithmetic({1, 1, 1, 1, 1, 1, 500});
  EXPECT_GT(steep.first, 0);
  EXPECT_GE(steep.step, 0);
  EXPECT_GT(steep.worst_relative_error, 0.5);
}

}  // namespace
}  // namespace thalweg::tune
