// How long an allreduce takes if switches sum the tensors on their way (docs/switch.md), in the
// terms of cost.h, so that the planner can compare it with plans among the ranks.
//
// Each rank sends its tensor once and receives the sum once, at the same time; besides, the ranks
// compare their calls. A rank that is also a server has no more traffic on its link: its share of
// the sums comes in and goes out in place of its own part of that share.
//
// If the ranks are in several regions, it matters who sums. With one level one switch above the
// regions sums, and a region's links carry the tensors of all its ranks out and as many results in.
// With two levels the regions' switches sum first, and the servers are all in one region, the one
// that takes the least time for it (net/atp/placement.h): its links carry one sum in for every
// other region and as many results out, and those of any other region one of each.
#pragma once

#include <cstdint>

#include "base/units.h"
#include "plan/cost.h"
#include "topology/topology.h"

namespace thalweg::plan {

// The values of sockets, unless the switch says otherwise.
inline constexpr std::int64_t kInNetworkElements = 256;
inline constexpr Bytes kInNetworkOverhead{74};

struct InNetworkRequest {
  std::int64_t elements = 0;  // above 0; each has 32 bits on the link, whatever the tensor's type
  std::int64_t block_elements = kInNetworkElements;  // per packet; above 0
  Bytes packet_overhead = kInNetworkOverhead;        // bytes on the link beside the elements
  int levels = 1;                                    // of switches that sum: 1 or 2
  Duration agreement;  // how long the ranks take to compare their calls
};

// The time is that of the slowest link of a host or of an innermost region, because a switch is as
// fast as its slowest sender.
[[nodiscard]] Duration in_network_time(const InNetworkRequest& request,
                                       const topology::Topology& topology,
                                       const CostOptions& options);

}  // namespace thalweg::plan
