// How long an allreduce takes that a switch sums on its way (docs/switch.md), in the words of
// cost.h, so that the planner may hold it against plans among the ranks.
//
// The ranks agree on the exponents of all blocks; then each sends its tensor once, and gets the sum
// once, at the same time. What is summed also passes the lines of the ranks that are servers: of
// each, its share of the sums comes in and goes out once more.
#pragma once

#include <cstdint>

#include "base/units.h"
#include "plan/cost.h"
#include "topology/topology.h"

namespace thalweg {

struct InNetworkRequest {
  std::int64_t elements = 0;        // of 32 bits on the line, whatever the tensor has; above 0
  std::int64_t block_elements = 1;  // of a packet; above 0
  Bytes packet_overhead;            // of a packet on the line beside its elements
  int servers = 1;                  // above 0
  Duration agreement;               // how long the ranks take to agree
};

// By the slowest line of a host: a switch passes on what the slowest sends.
[[nodiscard]] Duration in_network_time(const InNetworkRequest& request, const Topology& topology,
                                       const CostOptions& options);

}  // namespace thalweg
