#include "cli/testbed/live_fabric.h"

#include <algorithm>

#include "cli/testbed/frame.h"

namespace thalweg {
namespace {

// Some eight events at the rates that a machine can carry.
constexpr Duration kBucket = Duration::microseconds(16);

}  // namespace

LiveFabric::LiveFabric(const Topology& topology, const NetworkOptions& options, std::size_t mtu)
    : events_(kBucket),
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
  Packet packet;
  packet.sent = now;
  packet.flow = FlowId(0);
  packet.source = host;
  packet.target = fields->target;
  packet.wire_size = static_cast<std::uint32_t>(frame.size() - kEthernetHeader);
  packet.path_hash = fields->flow_hash;
  packet.priority = classifier_.queue_of(fields->dscp);
  packet.ecn = fields->ecn;
  static_cast<Packet&>(pool_[place]) = packet;
  fabric_.send(host, place);
  return true;
}

void LiveFabric::run(Time now, Sink& sink) {
  Event event;
  while (events_.pop(now.since_start().ps(), event)) {
    if (event.kind() == EventKind::kPortFree) {
      fabric_.on_port_free(event);
    } else {
      on_arrival(event, now, sink);
    }
  }
}

void LiveFabric::on_arrival(const Event& event, Time now, Sink& sink) {
  const std::uint32_t place = event.subject;
  const PooledPacket& packet = pool_[place];
  if (packet.stamp == event.stamp()) {
    sink.crossed(events_.now(), ArcId(static_cast<std::int32_t>(event.arc)), frame_at(place));
  }
  if (!fabric_.arrive(event)) return;
  const std::span<std::uint8_t> frame = frame_at(place);
  if (packet.ecn == Ecn::kCongested) mark_congested(frame);
  const Duration late = now - events_.now();
  ++lateness_.frames;
  if (late > Duration::microseconds(100)) ++lateness_.over_100us;
  if (late > Duration::milliseconds(1)) ++lateness_.over_1ms;
  lateness_.most = std::max(lateness_.most, late);
  sink.deliver(packet.target, frame);
  pool_.release(place);
}

}  // namespace thalweg
