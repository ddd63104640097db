// Where a switch starts to drop: the thresholds of DLCP's appendix B.
//
// Queue i of a port has two thresholds. Above S_i bytes packets of small gradients are dropped
// (they are not ECN-capable; S_i is the ECN/RED threshold). At L_i, the size of the queue, the
// large ones are dropped too. The appendix splits a queue into two that do not see each other, one
// for small and one for large gradients, with room for S'_i and L'_i packets:
//
//   S_i = S'_i / θ        at S_i bytes the share θ of the queue is small
//   L_i = S'_i + L'_i     from there on only large ones come in
//
// Both parts have the utilization ρ_i of the queue, so their losses are r(ρ_i, S'_i) and
// r(ρ_i, L'_i) (queueing.h). The problem we solve, with the constraints that the appendix leaves
// unsaid:
//
//   minimize    Σ_i  f^S_i·r(ρ_i, S'_i)^p + f^L_i·r(ρ_i, L'_i)^p
//   subject to  Σ_i (S'_i + L'_i) <= B          the queues share the buffer
//               S_i <= L_i,  that is  L'_i >= S'_i·(1 − θ)/θ
//               S'_i, L'_i >= 1                 a queue holds the packet it sends
//
// Method. r is convex and falls with the room; for p >= 1 so does every term, the constraints are
// linear, and only the first one ties queues together. So the dual is solved: for a price ν per
// packet each queue buys room while it saves more than ν (one-dimensional bisection, over the pair
// on the edge S_i = L_i where that binds). The demand falls as the price rises, so bisection finds
// the price at which the buffer is sold out. That point satisfies the conditions of Karush, Kuhn
// and Tucker, which for a convex problem makes it the optimum; it is unique if all weights are
// above zero and every queue has traffic.
#pragma once

#include <cstddef>
#include <vector>

#include <thalweg/result.h>

namespace thalweg::tune {

// The cost of losing a share r of a queue's gradients is weight · r^p, in additional rounds. Only
// ratios of weights matter.
struct LossWeights {
  double small = 1;  // f^S_i
  double large = 1;  // f^L_i
};

struct ThresholdProblem {
  // The data queues, the most urgent first: each one's share of the bytes. The shares add up to 1.
  std::vector<double> shares;
  std::vector<LossWeights> weights;  // one per queue, above zero
  double load = 0.9;                 // λ/μ of the port; above 0, below 1
  double small_fraction = 0.5;       // θ; above 0, below 1
  double exponent = 1;               // p; at least 1
  double buffer = 0;                 // B, in packets
};

struct QueueThresholds {
  double utilization = 0;  // ρ_i
  double small_room = 0;   // S'_i; this and the next three are in packets
  double large_room = 0;   // L'_i
  double threshold = 0;    // S_i
  double limit = 0;        // L_i
  double small_loss = 0;   // r of the small gradients
  double large_loss = 0;   // r of the large gradients
};

struct ThresholdSolution {
  std::vector<QueueThresholds> queues;
  double log_cost = 0;   // logarithm of the minimum; the cost itself may be too small to represent
  double log_price = 0;  // ln ν: what one more packet of buffer would save
};

// An error names the field and what is allowed.
Result<ThresholdSolution> solve_thresholds(const ThresholdProblem& problem);

// The cost of given rooms, for checks and comparisons. Requires one pair per queue.
struct QueueRooms {
  double small = 1;
  double large = 1;
};
double log_cost_of(const ThresholdProblem& problem, const std::vector<QueueRooms>& rooms);

// The least buffer, in packets, for which there is a solution.
double least_buffer(std::size_t queues, double small_fraction);

// The arithmetic sequence T·(1 + (q − 1)·d) of section 4.2 that is nearest to the thresholds of
// queues 1, 2, … by least squares, with T > 0 and d >= 0, and its largest error relative to a
// threshold.
struct ArithmeticFit {
  double first = 0;  // T
  double step = 0;   // d
  double worst_relative_error = 0;
};
ArithmeticFit fit_arithmetic(const std::vector<double>& thresholds);

}  // namespace thalweg::tune
