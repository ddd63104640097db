#include "lab/bench/step/limit.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "wire/atp_packet.h"
#include "wire/data_header.h"

namespace thalweg::lab::step {
namespace {

constexpr double kMtu = 1500;
constexpr double kIpAndUdp = 28;
constexpr double kIpAndTcp = 52;  // with the time stamps that Linux sends

// Bytes on a link for each byte of a tensor, when packets are full.
double growth_of(const Library& library) {
  const CommunicatorOptions defaults;
  // What auto will choose is not known before, so it has the limit of TCP.
  const bool tcp = library.transport == Transport::kTcp || library.transport == Transport::kAuto;
  if (library.gloo || tcp) return kMtu / (kMtu - kIpAndTcp);
  const bool dlcp = library.transport == Transport::kDlcp;
  const double payload =
      dlcp ? CommunicatorOptions::kUsualDlcpPayload : 4.0 * defaults.atp_elements;
  const double header =
      kIpAndUdp + static_cast<double>(dlcp ? wire::data_overhead(false) : wire::kAtpHeaderSize);
  return (payload + header) / payload;
}

std::vector<double> host_rates(const topology::Topology& topology) {
  std::vector<double> rates;
  for (Rank rank(0); rank.value() < topology.host_count(); ++rank) {
    double bps = 0;
    for (const topology::ArcId arc : topology.arcs_from(topology.host(rank))) {
      bps += static_cast<double>(topology.arc(arc).spec.rate.bps());
    }
    rates.push_back(bps);
  }
  return rates;
}

// The rate of the links that leave a region.
double rate_out_of(const topology::Topology& topology, topology::RegionId region) {
  double bps = 0;
  for (const topology::Link& link : topology.links()) {
    const bool a = topology.contains(region, topology.node(link.a).region);
    const bool b = topology.contains(region, topology.node(link.b).region);
    if (a != b) bps += static_cast<double>(link.spec.rate.bps());
  }
  return bps;
}

// The slowest of all cuts that the whole tensor must cross, in both directions: around a host, and
// around a region that holds some of the hosts.
double slowest_cut(const topology::Topology& topology, const std::vector<double>& hosts) {
  double slowest = *std::ranges::min_element(hosts);
  for (std::size_t r = 1; r < topology.regions().size(); ++r) {
    const std::size_t inside = topology.regions()[r].hosts.size();
    if (inside == 0 || inside == hosts.size()) continue;
    slowest =
        std::min(slowest, rate_out_of(topology, topology::RegionId(static_cast<std::int32_t>(r))));
  }
  return slowest;
}

}  // namespace

Bandwidth slowest_host(const topology::Topology& topology) {
  return Bandwidth::bits_per_second(
      static_cast<std::int64_t>(std::ranges::min(host_rates(topology))));
}

Duration wire_time(const topology::Topology& topology, const Library& library, Bytes size,
                   double bound) {
  const double bits = 8 * static_cast<double>(size.count()) * growth_of(library) *
                      (library.bounded ? 1 - bound : 1);
  const std::vector<double> hosts = host_rates(topology);
  double seconds = bits / slowest_cut(topology, hosts);
  if (library.transport != Transport::kAtp) {
    // Without a switch that sums, every part of the tensor is sent n − 1 times to be added up, and
    // n − 1 times as the sum.
    double together = 0;
    for (const double bps : hosts) together += bps;
    const auto others = static_cast<double>(hosts.size() - 1);
    seconds = std::max(seconds, 2 * others * bits / together);
  }
  return Duration::seconds(seconds);
}

Duration step_limit(const topology::Topology& topology, const Library& library,
                    const Schedule& schedule, double bound) {
  const Duration forward = schedule.forward();
  const Duration computing = forward + schedule.backward();
  Duration ready = forward;  // when the bucket's gradients are there
  Duration idle;             // when the links have carried all buckets before
  Duration all_wires;
  Duration limit = computing;
  Duration in_front = forward;  // what is computed forward before the bucket's layers
  for (const Bucket& bucket : schedule.buckets) {
    const Duration wires = wire_time(topology, library, bucket.size(), bound);
    ready = ready + bucket.backward;
    in_front = in_front - bucket.forward;
    all_wires = all_wires + wires;
    idle = std::max(idle, ready) + wires;
    // The layers of the bucket go forward again when it is back.
    if (schedule.order == Order::kLayerwise) limit = std::max(limit, ready - in_front + wires);
  }
  return std::max(limit, schedule.order == Order::kDdp ? idle : all_wires);
}

}  // namespace thalweg::lab::step
