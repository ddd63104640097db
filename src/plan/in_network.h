// How long an allreduce takes that a switch sums on its way (docs/switch.md), in the words of
// cost.h, so that the planner may hold it against plans among the ranks.
//
// The ranks agree on the exponents of all blocks; then each sends its tensor once, and gets the sum
// once, at the same time. What is summed also passes the lines of the ranks that are servers: of
// each, its share of the sums comes in and goes out once more. Where the ranks are in several
// regions, whose switches sum first, a region's links carry its sums out and all others' in.
#pragma once

#include <cstdint>

#include "base/units.h"
#include "plan/cost.h"
#include "topology/topology.h"

namespace thalweg {

// As sockets have them, unless the switch says otherwise.
inline constexpr std::int64_t kInNetworkElements = 256;
inline constexpr Bytes kInNetworkOverhead{74};

struct InNetworkRequest {
  std::int64_t elements = 0;  // of 32 bits on the line, whatever the tensor has; above 0
  std::int64_t block_elements = kInNetworkElements;  // of a packet; above 0
  Bytes packet_overhead = kInNetworkOverhead;        // on the line beside its elements
  int servers = 1;                                   // above 0
  Duration agreement;                                // how long the ranks take to agree
};

// By the slowest line of a host or of an innermost region: a switch passes on what the slowest
// sends. Servers are taken to be spread over the regions as the ranks are.
[[nodiscard]] Duration in_network_time(const InNetworkRequest& request, const Topology& topology,
                                       const CostOptions& options);

}  // namespace thalweg
