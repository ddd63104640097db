#include "plan/in_network.h"

#include <algorithm>

#include "base/check.h"

namespace thalweg {

Duration in_network_time(const InNetworkRequest& request, const Topology& topology,
                         const CostOptions& options) {
  CHECK(request.elements > 0 && request.block_elements > 0 && request.servers > 0);
  constexpr std::int64_t kElementBytes = 4;
  const std::int64_t packets = (request.elements - 1) / request.block_elements + 1;
  const Bytes tensor(request.elements * kElementBytes + packets * request.packet_overhead.count());
  const Bytes on_line = tensor + Bytes(tensor.count() / request.servers);
  Duration slowest;
  for (int r = 0; r < topology.host_count(); ++r) {
    // A host with several lines uses one.
    Duration own;
    for (const ArcId id : topology.arcs_from(topology.host(Rank(r)))) {
      const LinkSpec spec = topology.arc(id).spec;
      // Up to the switch, on to the server, and both ways back.
      const Duration time = spec.rate.transmission_time(on_line) + spec.delay * 4;
      own = own == Duration() ? time : std::min(own, time);
    }
    slowest = std::max(slowest, own);
  }
  // To the switch, from there to the server, and back by it.
  constexpr std::int64_t kMessages = 4;
  return request.agreement + options.per_message * kMessages + slowest;
}

}  // namespace thalweg
