// The loop between endpoints and the fabric: packets in, packets out, timers.
#include <algorithm>

#include "base/check.h"
#include "sim/dlcp/dlcp_hosts.h"

namespace thalweg {
namespace {

// An endpoint whose data waits for the port says that its time has come. Its other timers are
// looked at this often.
constexpr Duration kTurnPatience = Duration::microseconds(20);
// Timers beyond this (deadlines) are not worth an event.
constexpr Time kHorizon = Time::at(Duration::milliseconds(4LL * 3600 * 1000));
constexpr int kNumberBits = 32;  // of a data packet's sequence: the number, then the transfer

}  // namespace

void DlcpHosts::on_packet(std::uint32_t place) {
  switch (pool_[place].kind) {
    case PacketKind::kDlcpData:
      return on_data(place);
    case PacketKind::kDlcpControl:
      return on_control(place);
    case PacketKind::kDlcpAck:
      return on_ack(place);
    case PacketKind::kData:
    case PacketKind::kAck:
    case PacketKind::kAggregated:
    case PacketKind::kMulticast:
      CHECK(false, "not a packet of DLCP");
  }
}

// A packet's `flow` is the side that it goes to; its segment stands in rank_in_queue.
void DlcpHosts::on_data(std::uint32_t place) {
  const PooledPacket& packet = pool_[place];
  const auto index = static_cast<std::uint32_t>(packet.flow.value());
  DataHeader header;
  header.sequence = packet.sequence & ((std::uint64_t{1} << kNumberBits) - 1);
  header.transfer = static_cast<std::uint32_t>(packet.sequence >> kNumberBits);
  header.segment = packet.rank_in_queue;
  header.sent_us = wire_clock(packet.sent);
  header.length = static_cast<std::uint16_t>(packet.payload);
  header.tag = {.priority = packet.priority, .important = packet.ecn != Ecn::kNotCapable};
  header.retransmission = packet.retransmission;
  const bool marked = packet.ecn == Ecn::kCongested;
  const std::uint32_t path = packet.path;
  pool_.release(place);
  const Placement placement = sides_[index]->endpoint.on_data(header, marked, events_.now(), path);
  if (placement.verdict == Placement::Verdict::kPlace) ++flows_[placement.cookie].placed;
  drive(index);
}

// The acknowledgement takes the place of the packet it answers.
void DlcpHosts::on_control(std::uint32_t place) {
  PooledPacket& packet = pool_[place];
  const auto index = static_cast<std::uint32_t>(packet.flow.value());
  Side& side = *sides_[index];
  Side& peer = *sides_[side.other];
  // A message that comes again: what answered it was lost.
  if (label_paths_ && packet.sequence < side.in.next()) ++side.control_path;
  side.in.on_packet(packet.sequence);
  while (side.in.has_next()) {
    side.endpoint.on_control(peer.out.message(side.in.take()), events_.now());
  }
  packet.kind = PacketKind::kDlcpAck;
  std::swap(packet.source, packet.target);
  packet.flow = FlowId(static_cast<std::int32_t>(side.other));
  packet.sequence = side.in.next();
  packet.wire_size = static_cast<std::uint32_t>(side.parameters.control_header.count());
  packet.payload = 0;
  packet.path_hash = side.control_path;
  fabric_.send(side.host, place);
  drive(index);
}

void DlcpHosts::on_ack(std::uint32_t place) {
  const PooledPacket& packet = pool_[place];
  const auto index = static_cast<std::uint32_t>(packet.flow.value());
  const std::uint64_t next = packet.sequence;
  pool_.release(place);
  sides_[index]->out.on_ack(next, events_.now());
  set_timer(index);
}

void DlcpHosts::on_timer(const Event& event) {
  Side& side = *sides_[event.subject];
  if (side.timer_ps != events_.now_ps() || side.timer_stamp != event.stamp()) {
    --void_timers_;
    return;
  }
  side.timer_ps = kNoTimer;
  drive(event.subject);
}

void DlcpHosts::on_drained(Rank host) {
  lines_.on_drained(host);
  send_in_turn(host);
}

void DlcpHosts::drive(std::uint32_t index) {
  Side& side = *sides_[index];
  const Time now = events_.now();
  side.endpoint.on_timeout(now);
  if (side.out.on_timeout(now)) {
    if (label_paths_) ++side.control_path;
    for (std::uint64_t n = side.out.first(); n < side.out.end(); ++n) send_message(side, n);
  }
  send_control(side);
  if (!side.in_turn && side.endpoint.data_ready(now)) {
    side.in_turn = true;
    lines_.join(side.host, index);
    send_in_turn(side.host);
  }
  set_timer(index);
  take_events(side);
}

void DlcpHosts::send_in_turn(Rank host) {
  const auto limit = [this](std::uint32_t index) { return limit_of(*sides_[index]); };
  DataBatch batch;
  lines_.serve(host, limit, [this, &batch](std::uint32_t index) {
    Side& side = *sides_[index];
    if (label_paths_) look_at_routes(side);
    if (side.endpoint.poll_data(events_.now(), 1, batch)) send_data(side, batch);
    side.in_turn = side.endpoint.data_ready(events_.now());
    send_control(side);
    set_timer(index);
    return side.in_turn;
  });
}

void DlcpHosts::look_at_routes(Side& side) {
  if (side.routes_version == fabric_.routes_version()) return;
  side.routes_version = fabric_.routes_version();
  const std::uint32_t paths = fabric_.path_count(side.host, side.peer);
  side.endpoint.set_paths(std::min(paths, static_cast<std::uint32_t>(kMaxReportPaths)),
                          events_.now());
}

// Where there are more paths than an endpoint tells apart, packets of one go round those it stands
// for.
std::uint32_t DlcpHosts::next_label(Side& side, std::uint32_t path) {
  const std::uint32_t paths = side.endpoint.path_shares().count();
  return (path + side.first_label % paths) % paths + paths * side.dealt++;
}

void DlcpHosts::send_data(Side& side, const DataBatch& batch) {
  const DataHeader header = batch.header(0);
  CHECK(header.sequence >> kNumberBits == 0, "too many packets between two hosts");
  Flow& flow = flows_[batch.cookie];
  ++flow.counters.segments;
  if (header.retransmission) ++flow.counters.retransmissions;
  const std::uint32_t place = pool_.allocate();
  PooledPacket& packet = pool_[place];
  packet.sequence = std::uint64_t{header.transfer} << kNumberBits | header.sequence;
  packet.sent = events_.now();
  packet.flow = FlowId(static_cast<std::int32_t>(side.other));
  packet.source = side.host;
  packet.target = side.peer;
  packet.payload = header.length;
  packet.wire_size = header.length + static_cast<std::uint32_t>(side.parameters.header.count());
  packet.rank_in_queue = header.segment;
  packet.labelled = flow.spec.path >= 0;
  packet.path = static_cast<std::uint8_t>(batch.path);
  packet.path_hash = label_paths_ && !packet.labelled ? next_label(side, batch.path) : flow.path;
  packet.kind = PacketKind::kDlcpData;
  packet.priority = header.tag.priority;
  packet.ecn = header.tag.important ? Ecn::kCapable : Ecn::kNotCapable;
  packet.echo = false;
  packet.retransmission = header.retransmission;
  ++counters_.data_packets_sent;
  fabric_.send(side.host, place);
}

void DlcpHosts::send_control(Side& side) {
  ControlMessage message;
  while (side.endpoint.poll_control(message)) {
    send_message(side, side.out.push(std::move(message), events_.now()));
  }
}

void DlcpHosts::send_message(Side& side, std::uint64_t number) {
  const std::size_t size = control_size(side.out.message(number), ControlEnvelope());
  const std::uint32_t place = pool_.allocate();
  PooledPacket& packet = pool_[place];
  packet.sequence = number;
  packet.sent = events_.now();
  packet.flow = FlowId(static_cast<std::int32_t>(side.other));
  packet.source = side.host;
  packet.target = side.peer;
  packet.payload = static_cast<std::uint32_t>(size);
  packet.wire_size =
      packet.payload + static_cast<std::uint32_t>(side.parameters.control_header.count());
  packet.rank_in_queue = 0;
  packet.labelled = false;
  packet.path_hash = side.control_path;
  packet.kind = PacketKind::kDlcpControl;
  packet.priority = 0;
  packet.ecn = Ecn::kNotCapable;
  packet.echo = false;
  packet.retransmission = false;
  fabric_.send(side.host, place);
}

void DlcpHosts::set_timer(std::uint32_t index) {
  Side& side = *sides_[index];
  std::optional<Time> next = side.endpoint.next_timeout();
  if (next && side.in_turn) next = std::max(*next, events_.now() + kTurnPatience);
  if (const auto resend = side.out.next_timeout(); resend) {
    next = next ? std::min(*next, *resend) : *resend;
  }
  const bool wanted = next && *next < kHorizon;
  const std::int64_t when =
      wanted ? std::max(next->since_start().ps(), events_.now_ps()) : kNoTimer;
  if (side.timer_ps != kNoTimer) {
    // One that comes too early finds nothing to do and is set again.
    if (wanted && side.timer_ps <= when) return;
    ++void_timers_;
  }
  side.timer_ps = when;
  if (wanted) events_.push(when, EventKind::kDlcpTimer, index, 0, ++side.timer_stamp);
}

}  // namespace thalweg
