// How long a plan takes: an α–β model with max-min fair sharing of links over time.
//
// Every transfer waits for its version, then for its turn: from one rank to another one transfer
// flows at a time, in plan order among those that are ready, as on one connection. A connection
// that was idle then takes α to start; a busy one takes a smaller overhead, unless the transfer
// became ready together with the one before it and goes out in the same message. Then it flows at
// its max-min fair share of every arc on its paths until its bytes are through, and arrives a
// propagation delay later. Rates change whenever a transfer starts or ends. Flows are fluid and
// split evenly over equal-cost paths; loss, headers and slow start are the simulator's business.
#pragma once

#include <vector>

#include "plan/accounting.h"
#include "plan/plan.h"
#include "topology/routing.h"

namespace thalweg {

struct CostOptions {
  // α: what starting a message on an idle connection costs beside propagation. 10 us is a kernel
  // TCP message.
  Duration per_message = Duration::microseconds(10);
  // What one more message on a busy connection costs: mostly system calls.
  Duration per_follow_up = Duration::microseconds(2);
  // Starts and ends that lie within this part of the plan's lower bound are taken together, so that
  // a plan of a million transfers needs some thousand rate computations. It moves the prediction by
  // about this part for every dependency step at most.
  double resolution = 1e-4;
  // Record when each transfer ran.
  bool timeline = false;
};

// When a transfer's bytes left its source.
struct TransferSpan {
  std::size_t transfer = 0;  // index in the plan
  Time start;
  Time end;
};

struct CostEstimate {
  Duration total;
  int rate_computations = 0;
  std::vector<TransferSpan> timeline;  // by end, if asked for
};

// Requires a plan that verify() has proved, a topology it fits, and the plan's accounting there.
CostEstimate estimate_cost(const Plan& plan, const Accounting& accounting, const Topology& topology,
                           const Routing& routing, const CostOptions& options);

}  // namespace thalweg
