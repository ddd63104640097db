#include "lab/testbed/live_fabric.h"

#include <algorithm>

#include "lab/testbed/frame.h"

namespace thalweg::lab {
namespace {

// About eight events happen in this time at the rates that a machine can carry.
constexpr Duration kFrameBucket = Duration::microseconds(16);

}  // namespace

LiveFabric::LiveFabric(const topology::Topology& topology, const sim::NetworkOptions& options,
                       std::size_t mtu)
    : events_(kFrameBucket),
      fabric_(topology, options, events_, counters_),
      pool_(fabric_.pool()),
      longest_frame_(mtu + kEthernetHeader),
      frames_(kMaxFrames) {}

bool LiveFabric::send(Time now, Rank host, std::span<const std::uint8_t> frame) {
  const std::optional<FrameFields> fields = read_frame(frame, fabric_.host_count());
  if (!fields || fields->target == host || frame.size() > longest_frame_ ||
      pool_.live() >= kMaxFrames) {
    ++refused_;
    return false;
  }
  events_.advance_to(std::max(events_.now_ps(), now.since_start().ps()));
  const std::uint32_t place = pool_.allocate();
  Held& held = frames_[place];
  if (!held.bytes) held.bytes = std::make_unique<std::uint8_t[]>(longest_frame_);
  std::copy(frame.begin(), frame.end(), held.bytes.get());
  held.size = frame.size();
  sim::Packet packet;
  packet.sent = now;
  packet.flow = sim::FlowId(0);
  packet.source = host;
  packet.target = fields->target;
  packet.wire_size = static_cast<std::uint32_t>(frame.size() - kEthernetHeader);
  packet.path_hash = fields->flow_hash;
  packet.priority = classifier_.queue_of(fields->dscp);
  packet.ecn = fields->ecn;
  static_cast<sim::Packet&>(pool_[place]) = packet;
  fabric_.send(host, place);
  return true;
}

void LiveFabric::run(Time now, Sink& sink) {
  sim::Event event;
  while (events_.pop(now.since_start().ps(), event)) {
    if (event.kind() == sim::EventKind::kPortFree) {
      fabric_.on_port_free(event);
    } else {
      on_arrival(event, now, sink);
    }
  }
}

void LiveFabric::on_arrival(const sim::Event& event, Time now, Sink& sink) {
  const std::uint32_t place = event.subject;
  const sim::PooledPacket& packet = pool_[place];
  if (packet.stamp == event.stamp()) {
    sink.crossed(events_.now(), topology::ArcId(static_cast<std::int32_t>(event.arc)),
                 frame_at(place));
  }
  if (!fabric_.arrive(event)) return;
  const std::span<std::uint8_t> frame = frame_at(place);
  if (packet.ecn == sim::Ecn::kCongested) mark_congested(frame);
  const Duration late = now - events_.now();
  ++lateness_.frames;
  if (late > Duration::microseconds(100)) ++lateness_.over_100us;
  if (late > Duration::milliseconds(1)) ++lateness_.over_1ms;
  lateness_.most = std::max(lateness_.most, late);
  sink.deliver(packet.target, frame);
  pool_.release(place);
}

}  // namespace thalweg::lab
