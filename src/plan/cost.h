// How long a plan takes: an α–β model with max-min fair sharing of links over time.
//
// Every transfer waits for its version, then for its turn (one transfer at a time from one rank to
// another, in plan order, as on one connection), then α for the message, then flows at its max-min
// fair share of every arc on its paths until its bytes are through, and arrives a propagation delay
// later. Rates change whenever a transfer starts or ends. Flows are fluid and split evenly over
// equal-cost paths; loss, headers and slow start are the simulator's business.
#pragma once

#include <vector>

#include "plan/plan.h"
#include "topology/routing.h"

namespace thalweg {

struct CostOptions {
  // α: what starting one message costs beside propagation. 10 us is a kernel TCP message.
  Duration per_message = Duration::microseconds(10);
  // Starts and ends closer together than this part of the plan's lower bound are taken as one, so
  // that a plan with a million transfers needs some thousand steps. The prediction moves by at
  // most about this part a dependency step.
  double resolution = 1e-4;
  // Record when each transfer ran.
  bool timeline = false;
};

struct TransferSpan {
  std::size_t transfer = 0;  // index in the plan
  Time start;
  Time end;
};

struct CostEstimate {
  Duration total;
  std::vector<TransferSpan> timeline;  // by start, if asked for
};

// Requires a verified plan whose ranks are hosts of the topology.
CostEstimate estimate_cost(const Plan& plan, const Topology& topology, const Routing& routing,
                           const CostOptions& options);

}  // namespace thalweg
