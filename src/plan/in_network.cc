#include "plan/in_network.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "plan/scheme.h"

namespace thalweg::plan {
namespace {

// The links that leave an innermost region, all together.
struct Uplinks {
  std::size_t members = 0;
  Bandwidth rate;
  Duration delay;  // of the slowest

  // How long they take for so many tensors in one direction.
  [[nodiscard]] Duration time_for(Bytes tensor, std::size_t tensors) const {
    if (rate == Bandwidth()) return {};
    const auto bytes = tensor.count() * static_cast<std::int64_t>(tensors);
    return rate.transmission_time(Bytes(bytes)) + delay * 4;
  }
};

std::vector<Uplinks> uplinks_of(const topology::Topology& topology) {
  std::vector<Uplinks> result;
  for (const auto& members : innermost_groups(topology)) {
    const topology::RegionId region = topology.region_of(members.front());
    Uplinks& uplinks = result.emplace_back();
    uplinks.members = members.size();
    for (const topology::Link& link : topology.links()) {
      if (topology.contains(region, topology.node(link.a).region) ==
          topology.contains(region, topology.node(link.b).region)) {
        continue;
      }
      uplinks.rate = uplinks.rate + link.spec.rate;
      uplinks.delay = std::max(uplinks.delay, link.spec.delay);
    }
  }
  return result;
}

// The time of the slowest innermost region's uplinks; zero if there is only one region.
Duration slowest_region(Bytes tensor, int levels, const topology::Topology& topology) {
  const std::vector<Uplinks> regions = uplinks_of(topology);
  if (regions.size() < 2) return {};
  Duration slowest;
  for (const Uplinks& region : regions) {
    slowest = std::max(slowest, region.time_for(tensor, levels == 1 ? region.members : 1));
  }
  if (levels == 1) return slowest;
  // Every other region's sum goes to the servers' region, and one result comes back to each.
  const auto serve = [&](const Uplinks& region) {
    return region.time_for(tensor, regions.size() - 1);
  };
  Duration servers = serve(regions.front());
  for (const Uplinks& region : regions) servers = std::min(servers, serve(region));
  return std::max(slowest, servers);
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
