// The always-on checks of a Fabric: sums that must agree whatever happened to the packets.
#include <fmt/core.h>

#include "sim/core/fabric.h"

namespace thalweg::sim {

void Fabric::check(std::vector<std::string>& violations) const {
  for (std::uint32_t arc = 0; arc < ports_.size(); ++arc) check_port(arc, violations);
  check_packets(violations);
  if (shared_peak_ > shared_limit_) {
    violations.push_back(
        fmt::format("a switch held {} bytes, {} are allowed", shared_peak_, shared_limit_));
  }
  if (events_.late() > 0) {
    violations.push_back(fmt::format("{} events lay in the past", events_.late()));
  }
}

void Fabric::check_port(std::uint32_t arc, std::vector<std::string>& violations) const {
  const Port& port = ports_[arc];
  const std::string name = topology_.arc_name(topology::ArcId(static_cast<std::int32_t>(arc)));
  if (port.highest_bytes() > port.limit) {
    violations.push_back(fmt::format("port {} held {} bytes, {} are allowed", name,
                                     port.highest_bytes(), port.limit));
  }
  std::uint64_t waiting = port.queues ? port.queues->bytes() : 0;
  for (std::uint32_t i = 0; i < port.line.size(); ++i) waiting += port.line.at(i).size;
  if (waiting != port.waiting_bytes) {
    violations.push_back(fmt::format("port {} counts {} waiting bytes and holds {}", name,
                                     port.waiting_bytes, waiting));
  }
}

// Conservation: every packet that hosts sent, switches copied or other shards sent was delivered,
// absorbed by a switch, dropped, sent to another shard or is still inside; and each packet inside
// waits in the queues of a port or is under way with exactly one valid event.
void Fabric::check_packets(std::vector<std::string>& violations) const {
  std::uint64_t inside = 0;
  std::uint64_t bytes_inside = 0;
  for (const PooledPacket& packet : pool_.places()) {
    if (!packet.live) continue;
    ++inside;
    bytes_inside += packet.wire_size;
  }
  const NetworkCounters& c = counters_;
  const std::uint64_t dropped = c.drops_full + c.drops_selective + c.drops_fault;
  // What came from other shards, less what left for them, in arithmetic modulo 2^64.
  const auto packets_received = static_cast<std::uint64_t>(packets_received_);
  const auto bytes_received = static_cast<std::uint64_t>(bytes_received_);
  if (c.packets_sent + c.packets_copied + packets_received !=
      c.packets_delivered + c.packets_absorbed + dropped + inside) {
    violations.push_back(
        fmt::format("packets: {} sent, {} copied, {} from other shards, {} delivered, {} absorbed, "
                    "{} dropped, {} inside",
                    c.packets_sent, c.packets_copied, packets_received_, c.packets_delivered,
                    c.packets_absorbed, dropped, inside));
  }
  if (c.bytes_sent + c.bytes_copied + bytes_received !=
      c.bytes_delivered + c.bytes_absorbed + c.bytes_dropped + bytes_inside) {
    violations.push_back(fmt::format(
        "bytes: {} sent, {} copied, {} from other shards, {} delivered, {} absorbed, {} dropped, "
        "{} inside",
        c.bytes_sent, c.bytes_copied, bytes_received_, c.bytes_delivered, c.bytes_absorbed,
        c.bytes_dropped, bytes_inside));
  }
  std::uint64_t bytes_placed = 0;
  for (const Port& port : ports_) bytes_placed += port.queues ? port.queues->bytes() : 0;
  events_.for_each([&](const Event& event) {
    if (event.kind() != EventKind::kArrival && event.kind() != EventKind::kDeparture) return;
    const PooledPacket& packet = pool_[event.subject];
    if (packet.live && packet.stamp == event.stamp()) bytes_placed += packet.wire_size;
  });
  if (bytes_placed != bytes_inside) {
    violations.push_back(fmt::format("bytes: {} inside, {} of them in a queue or under way",
                                     bytes_inside, bytes_placed));
  }
}

}  // namespace thalweg::sim
