#include "tune/thresholds.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "tune/queueing.h"

namespace thalweg::tune {
namespace {

constexpr double kLeastRoom = 1;
// How often a bracket is halved: beyond the precision of a double for any bracket we start from.
constexpr int kHalvings = 80;
constexpr double kShareTolerance = 1e-9;

double log_sum(double a, double b) {
  const double high = std::max(a, b);
  if (std::isinf(high)) return high;
  return high + std::log1p(std::exp(std::min(a, b) - high));
}

// The point in [low, high] up to which a falling function is above `level`.
template <class Falling>
double last_above(const Falling& falling, double level, double low, double high) {
  if (falling(low) <= level) return low;
  if (falling(high) > level) return high;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = 0.5 * (low + high);
    (falling(middle) > level ? low : high) = middle;
  }
  return low;
}

// One queue of the problem.
struct Queue {
  double utilization = 0;
  double log_small = 0;  // ln f^S
  double log_large = 0;
  double exponent = 1;
  double ratio = 1;  // (1 − θ)/θ: L' is at least S' times this

  [[nodiscard]] double log_cost(double log_weight, double room) const {
    return log_weight + exponent * log_loss(utilization, room);
  }
  // The logarithm of what a little more room saves: weight·p·r^(p−1)·(−r').
  [[nodiscard]] double log_saving(double log_weight, double room) const {
    const double slope = log_loss_slope(utilization, room);
    if (exponent == 1 || std::isinf(slope)) return log_weight + slope;
    return log_weight + std::log(exponent) + (exponent - 1) * log_loss(utilization, room) + slope;
  }

  // The rooms that the queue buys at a price, at most `buffer` of each kind.
  [[nodiscard]] QueueRooms demand(double log_price, double buffer) const {
    const auto small_saving = [&](double room) { return log_saving(log_small, room); };
    const auto large_saving = [&](double room) { return log_saving(log_large, room); };
    QueueRooms rooms{.small = last_above(small_saving, log_price, kLeastRoom, buffer),
                     .large = last_above(large_saving, log_price, kLeastRoom, buffer)};
    if (rooms.large >= ratio * rooms.small) return rooms;
    // On the edge L' = ratio·S', the room of one packet is split 1 : ratio.
    const auto edge_saving = [&](double small) {
      return log_sum(log_saving(log_small, small),
                     std::log(ratio) + log_saving(log_large, ratio * small)) -
             std::log1p(ratio);
    };
    const double least = std::max(kLeastRoom, kLeastRoom / ratio);
    rooms.small = last_above(edge_saving, log_price, least, std::max(least, buffer));
    rooms.large = ratio * rooms.small;
    return rooms;
  }
};

std::vector<Queue> queues_of(const ThresholdProblem& problem) {
  const std::vector<double> utilizations = queue_utilizations(problem.shares, problem.load);
  std::vector<Queue> queues;
  queues.reserve(problem.shares.size());
  for (std::size_t i = 0; i < problem.shares.size(); ++i) {
    queues.push_back({.utilization = utilizations[i],
                      .log_small = std::log(problem.weights[i].small),
                      .log_large = std::log(problem.weights[i].large),
                      .exponent = problem.exponent,
                      .ratio = (1 - problem.small_fraction) / problem.small_fraction});
  }
  return queues;
}

Status check_open_interval(std::string_view what, double value) {
  if (value > 0 && value < 1) return ok_status();
  return Error(fmt::format("{} {} is out of range: above 0 and below 1", what, value));
}

Status check(const ThresholdProblem& problem) {
  if (problem.shares.empty()) return Error("no queue for data: at least one is needed");
  CHECK(problem.weights.size() == problem.shares.size());
  THALWEG_TRY_STATUS(check_open_interval("load", problem.load));
  THALWEG_TRY_STATUS(check_open_interval("small fraction", problem.small_fraction));
  if (!(problem.exponent >= 1) || std::isinf(problem.exponent)) {
    return Error(fmt::format("exponent {} is out of range: at least 1", problem.exponent));
  }
  for (const LossWeights& weights : problem.weights) {
    for (const double weight : {weights.small, weights.large}) {
      if (weight > 0 && !std::isinf(weight)) continue;
      return Error(fmt::format("weight {} is out of range: a number above 0", weight));
    }
  }
  const double total = std::accumulate(problem.shares.begin(), problem.shares.end(), 0.0);
  const bool negative = std::ranges::any_of(problem.shares, [](double s) { return !(s >= 0); });
  if (negative || std::abs(total - 1) > kShareTolerance) {
    return Error(
        fmt::format("the queues' shares must be 0 or more and add up to 1, not {}", total));
  }
  const double least = least_buffer(problem.shares.size(), problem.small_fraction);
  if (problem.buffer >= least && !std::isinf(problem.buffer)) return ok_status();
  return Error(fmt::format("a buffer of {} packets is too small for {} queues: at least {}",
                           problem.buffer, problem.shares.size(), least));
}

// The price at which the queues together demand the buffer, but never more.
double clearing_log_price(const std::vector<Queue>& queues, double buffer) {
  const auto demand_at = [&](double log_price) {
    double total = 0;
    for (const Queue& queue : queues) {
      const QueueRooms rooms = queue.demand(log_price, buffer);
      total += rooms.small + rooms.large;
    }
    return total;
  };
  double high = 1;
  while (demand_at(high) > buffer) high *= 2;
  double low = -1;
  while (demand_at(low) <= buffer && low > -1e300) low *= 2;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = 0.5 * (low + high);
    (demand_at(middle) > buffer ? low : high) = middle;
  }
  return high;
}

}  // namespace

double least_buffer(std::size_t queues, double small_fraction) {
  const double ratio = (1 - small_fraction) / small_fraction;
  return static_cast<double>(queues) * (kLeastRoom + std::max(1.0, ratio) * kLeastRoom);
}

double log_cost_of(const ThresholdProblem& problem, const std::vector<QueueRooms>& rooms) {
  CHECK(rooms.size() == problem.shares.size());
  const std::vector<Queue> queues = queues_of(problem);
  double total = -std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < queues.size(); ++i) {
    total = log_sum(total, queues[i].log_cost(queues[i].log_small, rooms[i].small));
    total = log_sum(total, queues[i].log_cost(queues[i].log_large, rooms[i].large));
  }
  return total;
}

Result<ThresholdSolution> solve_thresholds(const ThresholdProblem& problem) {
  THALWEG_TRY_STATUS(check(problem));
  const std::vector<Queue> queues = queues_of(problem);
  ThresholdSolution solution;
  solution.log_price = clearing_log_price(queues, problem.buffer);
  std::vector<QueueRooms> all;
  for (const Queue& queue : queues) {
    const QueueRooms rooms = queue.demand(solution.log_price, problem.buffer);
    all.push_back(rooms);
    solution.queues.push_back({.utilization = queue.utilization,
                               .small_room = rooms.small,
                               .large_room = rooms.large,
                               .threshold = rooms.small / problem.small_fraction,
                               .limit = rooms.small + rooms.large,
                               .small_loss = std::exp(log_loss(queue.utilization, rooms.small)),
                               .large_loss = std::exp(log_loss(queue.utilization, rooms.large))});
  }
  solution.log_cost = log_cost_of(problem, all);
  return solution;
}

ArithmeticFit fit_arithmetic(const std::vector<double>& thresholds) {
  CHECK(!thresholds.empty());
  const auto count = static_cast<double>(thresholds.size());
  const double mean = std::accumulate(thresholds.begin(), thresholds.end(), 0.0) / count;
  const double middle = 0.5 * (count - 1);
  double products = 0;
  double squares = 0;
  for (std::size_t i = 0; i < thresholds.size(); ++i) {
    const double x = static_cast<double>(i) - middle;
    products += x * (thresholds[i] - mean);
    squares += x * x;
  }
  double slope = squares > 0 ? std::max(0.0, products / squares) : 0;
  const double least = *std::ranges::min_element(thresholds);
  double first = mean - slope * middle;
  if (first <= 0) {
    // The line through the least threshold that is closest to the mean.
    first = least;
    slope = middle > 0 ? std::max(0.0, (mean - first) / middle) : 0;
  }
  ArithmeticFit fit{.first = first, .step = slope / first, .worst_relative_error = 0};
  for (std::size_t i = 0; i < thresholds.size(); ++i) {
    const double value = first + slope * static_cast<double>(i);
    fit.worst_relative_error =
        std::max(fit.worst_relative_error, std::abs(value - thresholds[i]) / thresholds[i]);
  }
  return fit;
}

}  // namespace thalweg::tune
