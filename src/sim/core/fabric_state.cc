// What observers, hosts and workloads ask of a Fabric: it changes no packet and no port.
#include <algorithm>
#include <utility>

#include "sim/core/fabric.h"

namespace thalweg::sim {

std::uint64_t Fabric::queued_bytes(topology::ArcId arc) const {
  const Port& port = ports_[arc.index()];
  std::uint64_t bytes = port.waiting_bytes;
  for (std::uint32_t i = 0; i < port.line.size(); ++i) {
    if (port.line.at(i).start_ps > events_.now_ps()) break;
    bytes -= port.line.at(i).size;
  }
  return bytes;
}

std::uint64_t Fabric::take_queue_peak(topology::ArcId arc) {
  Port& port = ports_[arc.index()];
  port.earlier_peak_bytes = port.highest_bytes();
  return std::exchange(port.peak_bytes, queued_bytes(arc));
}

std::uint64_t Fabric::socket_backlog(PacketKind kind, FlowId flow) const {
  const auto& sockets = kind == PacketKind::kData ? tcp_sockets_ : dlcp_sockets_;
  const std::size_t index = flow.index() >> flow_shift_;
  return index < sockets.size() ? sockets[index] : 0;
}

std::optional<Duration> Fabric::time_to_drain(Rank host, std::uint64_t bytes) const {
  double rate = 0;
  for (const topology::ArcId arc : topology_.arcs_from(topology_.host(host))) {
    const Port& port = ports_[arc.index()];
    if (!port.blocked) rate += port.rate.bytes_per_second();
  }
  if (rate == 0) return std::nullopt;
  return Duration::seconds(static_cast<double>(bytes) / rate);
}

Bandwidth Fabric::host_rate(Rank host) const {
  Bandwidth rate;
  for (const topology::ArcId arc : topology_.arcs_from(topology_.host(host))) {
    rate += topology_.arc(arc).spec.rate;
  }
  return rate;
}

std::uint32_t Fabric::path_count(Rank source, Rank target) const {
  const auto end = static_cast<std::uint32_t>(topology_.host(target).value());
  std::size_t count = 1;
  for (auto node = static_cast<std::uint32_t>(topology_.host(source).value()); node != end;) {
    const auto hops = routes_.hops(node, static_cast<std::uint32_t>(target.value()));
    if (hops.empty()) return 1;
    count *= hops.size();
    node = ports_[hops[0]].to_node;
  }
  return static_cast<std::uint32_t>(count);
}

std::uint64_t Fabric::peak_backlog() const {
  std::uint64_t peak = 0;
  for (const Port& port : ports_) peak = std::max(peak, port.highest_bytes());
  return peak;
}

std::uint64_t Fabric::peak_host_backlog() const {
  std::uint64_t peak = 0;
  for (const Port& port : ports_) {
    if (port.from_host) peak = std::max(peak, port.highest_bytes());
  }
  return peak;
}

}  // namespace thalweg::sim
