// The loop between endpoints and the fabric: it carries packets and timers.
#include <algorithm>

#include "base/check.h"
#include "sim/dlcp/dlcp_hosts.h"

namespace thalweg::sim {
namespace {

// An endpoint whose data waits for the port reports a timeout that is already due. Its other timers
// are looked at this often instead.
constexpr Duration kTurnPatience = Duration::microseconds(20);
// Timers beyond this time (deadlines) get no event.
constexpr Time kDlcpHorizon = Time::at(Duration::milliseconds(4LL * 3600 * 1000));
// A data packet's sequence holds the packet's number in these bits, and above them the transfer.
constexpr int kNumberBits = 32;

}  // namespace

void DlcpHosts::on_packet(std::uint32_t place) {
  switch (pool_[place].kind) {
    case PacketKind::kDlcpData:
      return on_data(place);
    case PacketKind::kDlcpControl:
      return on_control(place);
    case PacketKind::kDlcpAck:
      return on_ack(place);
    case PacketKind::kDlcpStopCopy:
      return on_stop_copy(place);
    case PacketKind::kDlcpGrant:
      return on_grant(place);
    case PacketKind::kData:
    case PacketKind::kAck:
    case PacketKind::kAggregated:
    case PacketKind::kMulticast:
      CHECK(false, "not a packet of DLCP");
  }
}

// A data packet's `flow` is the index of the side it goes to, and its rank_in_queue the segment.
void DlcpHosts::on_data(std::uint32_t place) {
  const PooledPacket& packet = pool_[place];
  const auto index = static_cast<std::uint32_t>(packet.flow.value());
  wire::DataHeader header;
  header.sequence = packet.sequence & ((std::uint64_t{1} << kNumberBits) - 1);
  header.transfer = static_cast<std::uint32_t>(packet.sequence >> kNumberBits);
  header.segment = packet.rank_in_queue;
  header.sent_us = wire::wire_clock(packet.sent);
  header.length = static_cast<std::uint16_t>(packet.payload);
  header.tag = {.priority = packet.priority, .important = packet.ecn != Ecn::kNotCapable};
  header.retransmission = packet.retransmission;
  const bool marked = packet.ecn == Ecn::kCongested;
  const std::uint32_t path = packet.path;
  pool_.release(place);
  const proto::Placement placement =
      sides_[index]->endpoint.on_data(header, marked, events_.now(), path);
  if (placement.verdict == proto::Placement::Verdict::kPlace) {
    Flow& flow = flows_[placement.cookie];
    ++flow.placed;
    const FlowSpec& spec = flow.spec;
    if (spec.watcher != nullptr) {
      spec.watcher->on_arrived(spec.cookie, {header.segment, header.segment + std::size_t{1}});
    }
  }
  drive(index);
}

// The acknowledgement reuses the packet that it answers.
void DlcpHosts::on_control(std::uint32_t place) {
  PooledPacket& packet = pool_[place];
  const auto index = static_cast<std::uint32_t>(packet.flow.value());
  Side& side = *sides_[index];
  Side& peer = *sides_[side.other];
  // The message comes again, so the acknowledgement that answered it was lost.
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

void DlcpHosts::on_stop_copy(std::uint32_t place) {
  const PooledPacket& packet = pool_[place];
  const auto index = static_cast<std::uint32_t>(packet.flow.value());
  sides_[index]->endpoint.on_data_end(packet.sequence, packet.priority, events_.now(), packet.path);
  pool_.release(place);
  drive(index);
}

// A grant's sequence holds the segments in the low bits, and above them the transfer.
void DlcpHosts::on_grant(std::uint32_t place) {
  const PooledPacket& packet = pool_[place];
  const auto index = static_cast<std::uint32_t>(packet.flow.value());
  wire::GrantMessage grant;
  grant.transfer = static_cast<std::uint32_t>(packet.sequence >> kNumberBits);
  grant.segments = static_cast<std::uint32_t>(packet.sequence);
  pool_.release(place);
  sides_[index]->endpoint.on_control(grant, events_.now());
  drive(index);
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
  resume(host);
}

void DlcpHosts::resume(Rank host) {
  if (ahead_ > 0) return send_in_order(host);
  if (socket_limit_ == 0) return send_in_turn(host);
  lines_.serve_all(host, socket_limit_ / 2, [this](std::uint32_t index) {
    Side& side = *sides_[index];
    side.in_turn = fill_socket(side);
    set_timer(index);
    return side.in_turn;
  });
}

void DlcpHosts::start_turn(std::uint32_t index) {
  Side& side = *sides_[index];
  side.in_turn = ahead_ > 0 || socket_limit_ == 0 || fill_socket(side);
  if (!side.in_turn) return;
  lines_.join(side.host, index);
  if (ahead_ > 0) return send_in_order(side.host);
  if (socket_limit_ == 0) return send_in_turn(side.host);
  lines_.watch(side.host, socket_limit_ / 2);
}

bool DlcpHosts::fill_socket(Side& side) {
  const FlowId socket(static_cast<std::int32_t>(side.other));
  if (label_paths_) look_at_routes(side);
  proto::DataBatch batch;
  bool full = fabric_.socket_backlog(PacketKind::kDlcpData, socket) >= socket_limit_;
  while (!full && side.endpoint.poll_data(events_.now(), 1, batch)) {
    send_data(side, batch);
    send_control(side);
    full = fabric_.socket_backlog(PacketKind::kDlcpData, socket) >= socket_limit_;
  }
  return full && side.endpoint.data_ready(events_.now());
}

void DlcpHosts::drive(std::uint32_t index) {
  Side& side = *sides_[index];
  const Time now = events_.now();
  side.endpoint.on_timeout(now);
  if (side.out.on_timeout(now)) {
    ++counters_.timeouts;
    if (label_paths_) ++side.control_path;
    for (std::uint64_t n = side.out.first(); n < side.out.end(); ++n) send_message(side, n);
  }
  send_control(side);
  if (!side.in_turn && side.endpoint.data_ready(now)) start_turn(index);
  set_timer(index);
  if (side.grants != nullptr) send_grants(*side.grants);
  take_events(side);
}

bool DlcpHosts::goes_before(std::uint32_t a, std::uint32_t b) const {
  const auto first = sides_[a]->endpoint.next_key();
  const auto second = sides_[b]->endpoint.next_key();
  // A side that has nothing to send any more leaves the line when its turn comes.
  return !first || (second && *first < *second);
}

void DlcpHosts::send_in_order(Rank host) {
  const auto before = [this](std::uint32_t a, std::uint32_t b) { return goes_before(a, b); };
  proto::DataBatch batch;
  lines_.serve_in_order(host, ahead_, before, [this, host, &batch](std::uint32_t index) {
    Side& side = *sides_[index];
    if (label_paths_) look_at_routes(side);
    while (fabric_.host_backlog(host) < ahead_ &&
           side.endpoint.poll_data(events_.now(), 1, batch)) {
      send_data(side, batch);
    }
    side.in_turn = side.endpoint.data_ready(events_.now());
    send_control(side);
    set_timer(index);
    return side.in_turn;
  });
}

void DlcpHosts::send_in_turn(Rank host) {
  const auto limit = [this](std::uint32_t index) { return limit_of(*sides_[index]); };
  proto::DataBatch batch;
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
  side.endpoint.set_paths(std::min(paths, static_cast<std::uint32_t>(wire::kMaxReportPaths)),
                          events_.now());
}

// Where there are more paths than an endpoint tells apart, each path of the endpoint stands for
// several, and its packets go round them.
std::uint32_t DlcpHosts::next_label(Side& side, std::uint32_t path) {
  const std::uint32_t paths = side.endpoint.path_shares().count();
  return (path + side.first_label % paths) % paths + paths * side.dealt++;
}

void DlcpHosts::send_data(Side& side, const proto::DataBatch& batch) {
  const wire::DataHeader header = batch.header(0);
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
  side.data_path = packet.path_hash;
  side.data_path_number = packet.path;
  side.data_labelled = packet.labelled;
  packet.kind = PacketKind::kDlcpData;
  packet.priority = header.tag.priority;
  packet.ecn = header.tag.important ? Ecn::kCapable : Ecn::kNotCapable;
  packet.echo = false;
  packet.retransmission = header.retransmission;
  ++counters_.data_packets_sent;
  fabric_.send(side.host, place);
}

void DlcpHosts::send_control(Side& side) {
  wire::ControlMessage message;
  while (side.endpoint.poll_control(message)) {
    const std::uint64_t number = side.out.push(std::move(message), events_.now());
    send_message(side, number);
    const auto* stop = std::get_if<wire::StopMessage>(&side.out.message(number));
    if (stop != nullptr) send_stop_copy(side, *stop);
  }
}

void DlcpHosts::send_message(Side& side, std::uint64_t number) {
  const std::size_t size =
      wire::control_size(side.out.message(number), wire::ControlEnvelope{.checked = true});
  send_signal(side, PacketKind::kDlcpControl, number, size, kControlPriority, side.control_path);
}

// The copy's sequence is the end of the data that it follows, on the path of the last data packet.
void DlcpHosts::send_stop_copy(Side& side, const wire::StopMessage& stop) {
  const std::size_t size = wire::control_size(stop, wire::ControlEnvelope{.checked = true});
  send_signal(side, PacketKind::kDlcpStopCopy, stop.end_sequence, size, stop.queue, side.data_path);
}

void DlcpHosts::send_grants(proto::GrantScheduler& grants) {
  proto::GrantScheduler::Grant grant;
  while (grants.poll(grant)) {
    const wire::GrantMessage message{grant.transfer, grant.segments};
    const std::size_t size = wire::control_size(message, wire::ControlEnvelope{.checked = true});
    Side& side = *sides_[grant.peer];
    send_signal(side, PacketKind::kDlcpGrant,
                std::uint64_t{grant.transfer} << kNumberBits | grant.segments, size,
                kControlPriority, side.control_path);
  }
}

void DlcpHosts::send_signal(Side& side, PacketKind kind, std::uint64_t sequence, std::size_t size,
                            std::uint8_t queue, std::uint32_t path) {
  const std::uint32_t place = pool_.allocate();
  PooledPacket& packet = pool_[place];
  packet.sequence = sequence;
  packet.sent = events_.now();
  packet.flow = FlowId(static_cast<std::int32_t>(side.other));
  packet.source = side.host;
  packet.target = side.peer;
  packet.payload = static_cast<std::uint32_t>(size);
  packet.wire_size =
      packet.payload + static_cast<std::uint32_t>(side.parameters.control_header.count());
  packet.rank_in_queue = 0;
  packet.labelled = kind == PacketKind::kDlcpStopCopy && side.data_labelled;
  packet.path = side.data_path_number;
  packet.path_hash = path;
  packet.kind = kind;
  packet.priority = queue;
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
  const bool wanted = next && *next < kDlcpHorizon;
  const std::int64_t when =
      wanted ? std::max(next->since_start().ps(), events_.now_ps()) : kNoTimer;
  if (side.timer_ps != kNoTimer) {
    // The event that is set comes no later: if it is too early, it finds nothing to do and is set
    // again.
    if (wanted && side.timer_ps <= when) return;
    ++void_timers_;
  }
  side.timer_ps = when;
  if (wanted) events_.push(when, EventKind::kDlcpTimer, index, 0, ++side.timer_stamp);
}

}  // namespace thalweg::sim
