#include "plan/in_network.h"

#include <algorithm>

#include "base/check.h"
#include "plan/scheme.h"

namespace thalweg::plan {
namespace {

// The time of the slowest innermost region's uplinks; zero if there is only one region.
Duration slowest_region(Bytes tensor, int levels, const topology::Topology& topology) {
  const auto regions = innermost_groups(topology);
  Duration slowest;
  if (regions.size() < 2) return slowest;
  for (const auto& members : regions) {
    const topology::RegionId region = topology.region_of(members.front());
    Bandwidth out;
    Duration delay;
    for (const topology::Link& link : topology.links()) {
      if (topology.contains(region, topology.node(link.a).region) ==
          topology.contains(region, topology.node(link.b).region)) {
        continue;
      }
      out = out + link.spec.rate;
      delay = std::max(delay, link.spec.delay);
    }
    if (out == Bandwidth()) continue;
    // For sums that servers elsewhere collect, the region's share goes out and the whole comes in.
    // For sums that its own servers collect, all other regions' shares come in.
    const double served = static_cast<double>(members.size()) / topology.host_count();
    const double in = (1 - served) + served * static_cast<double>(regions.size() - 1);
    const double times = levels == 1 ? static_cast<double>(members.size()) : std::max(1.0, in);
    const Bytes most(static_cast<std::int64_t>(static_cast<double>(tensor.count()) * times));
    slowest = std::max(slowest, out.transmission_time(most) + delay * 4);
  }
  return slowest;
}

}  // namespace

Duration in_network_time(const InNetworkRequest& request, const topology::Topology& topology,
                         const CostOptions& options) {
  CHECK(request.elements > 0 && request.block_elements > 0);
  constexpr std::int64_t kElementBytes = 4;
  const std::int64_t packets = (request.elements - 1) / request.block_elements + 1;
  const Bytes tensor(request.elements * kElementBytes + packets * request.packet_overhead.count());
  Duration slowest;
  for (int r = 0; r < topology.host_count(); ++r) {
    // A host with several links uses one of them.
    Duration own;
    for (const topology::ArcId id : topology.arcs_from(topology.host(Rank(r)))) {
      const topology::LinkSpec spec = topology.arc(id).spec;
      // Four delays: up to the switch, on to the server, and back the same way.
      const Duration time = spec.rate.transmission_time(tensor) + spec.delay * 4;
      own = own == Duration() ? time : std::min(own, time);
    }
    slowest = std::max(slowest, own);
  }
  slowest = std::max(slowest, slowest_region(tensor, request.levels, topology));
  // Four messages: to the switch, from there to the server, and back the same way.
  constexpr std::int64_t kMessages = 4;
  return request.agreement + options.per_message * kMessages + slowest;
}

}  // namespace thalweg::plan
