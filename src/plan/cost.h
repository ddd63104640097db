// How long a plan takes: an α–β model with max-min fair sharing of links over time.
//
// Every transfer waits for its version, then for its turn: from one rank to another one transfer
// flows at a time, in plan order among those that are ready, as on one connection. An idle
// connection then takes α to start; a busy one takes a smaller overhead, unless the transfer became
// ready together with the one before it and goes out in the same message. Then the transfer flows
// at its max-min fair share of every arc on its paths until all its bytes have left, and arrives a
// propagation delay later. Rates change whenever a transfer starts or ends. Flows are fluid and
// split evenly over equal-cost paths; loss, headers and slow start are left to the simulator.
#pragma once

#include <vector>

#include "plan/accounting.h"
#include "plan/plan.h"
#include "topology/routing.h"

namespace thalweg::plan {

struct CostOptions {
  // α: the cost of starting a message on an idle connection, beside propagation. 10 us is a kernel
  // TCP message.
  Duration per_message = Duration::microseconds(10);
  // The cost of one more message on a busy connection: mostly system calls.
  Duration per_follow_up = Duration::microseconds(2);
  // Starts and ends that lie within this fraction of the plan's lower bound are taken together, so
  // that a plan of a million transfers needs some thousand rate computations. It changes the
  // prediction by at most about this fraction for every dependency step.
  double resolution = 1e-4;
  // What predict.h knows of packets; the fluid model does not use these. A full packet's payload,
  // the header in every packet, and the packet that acknowledges one.
  Bytes payload{1460};
  Bytes header{40};
  Bytes acknowledgement{40};
  // What the senders of a host keep in the queue of its link: TCP small queues hold about a
  // millisecond of a flow, and at least two bursts of segmentation offload.
  Duration queue = Duration::milliseconds(1);
  Bytes least_queue{16'000};
  Bytes most_queue{64'000};
  // Whether to record when each transfer ran.
  bool timeline = false;
};

// The bytes that the queue of a host holds whose link has this rate, in bytes per second.
[[nodiscard]] double host_queue(const CostOptions& options, double rate);

// When a transfer's bytes left its source.
struct TransferSpan {
  std::size_t transfer = 0;  // index in the plan
  Time start;
  Time end;
};

struct CostEstimate {
  Duration total;
  int rate_computations = 0;
  std::vector<TransferSpan> timeline;  // in order of end; empty unless asked for
};

// Requires a plan that verify() has proved, a topology that it fits, and the plan's accounting
// there.
CostEstimate estimate_cost(const Plan& plan, const Accounting& accounting,
                           const topology::Topology& topology, const topology::Routing& routing,
                           const CostOptions& options);

}  // namespace thalweg::plan
