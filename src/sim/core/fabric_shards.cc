// A Fabric that is one shard of a network: packets that leave for other shards and come from them.
#include "sim/core/fabric.h"

namespace thalweg::sim {

Fabric::Fabric(const topology::Topology& topology, const NetworkOptions& options,
               EventQueue& events, NetworkCounters& counters, const ShardMap& shards,
               std::size_t shard, Post& post)
    : Fabric(topology, options, events, counters) {
  shards_ = &shards;
  post_ = &post;
  flow_shift_ = shards.flow_shift();
  for (Port& port : ports_) {
    port.leaves_shard =
        shards.of_node(port.from_node) == shard && shards.of_node(port.to_node) != shard;
  }
}

// A packet in a port's line can still be called back; from the start of its transmission on it
// cannot.
void Fabric::depart(const Event& event) {
  const PooledPacket& packet = pool_[event.subject];
  if (packet.stamp != event.stamp()) return;
  const Port& port = ports_[event.arc];
  const std::int64_t time_ps = port.transmission_ps(packet.wire_size + framing_bytes_);
  post_packet(event.arc, event.subject, events_.now_ps() + time_ps + port.delay_ps);
}

void Fabric::post_packet(std::uint32_t arc, std::uint32_t place, std::int64_t arrival_ps) {
  const PooledPacket& packet = pool_[place];
  --packets_received_;
  bytes_received_ -= packet.wire_size;
  post_->send(shards_->of_node(ports_[arc].to_node), PacketLetter{arrival_ps, arc, packet});
  pool_.release(place);
}

void Fabric::receive(const PacketLetter& letter) {
  const std::uint32_t place = pool_.allocate();
  PooledPacket& packet = pool_[place];
  static_cast<Packet&>(packet) = letter.packet;
  ++packets_received_;
  bytes_received_ += packet.wire_size;
  events_.push(letter.time_ps, EventKind::kArrival, place, letter.arc, packet.stamp);
}

}  // namespace thalweg::sim
