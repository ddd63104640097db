// The loop between the ends of aggregation and the fabric: it carries packets and timers.
#include <algorithm>

#include "base/check.h"
#include "sim/atp/aggregation_hosts.h"
#include "sim/atp/packet_header.h"

namespace thalweg::sim {
namespace {

// Timers beyond this time (deadlines of tensors) get no event.
constexpr Time kHorizon = Time::at(Duration::milliseconds(4LL * 3600 * 1000));

}  // namespace

void AggregationHosts::on_packet(std::uint32_t place) {
  const PooledPacket& packet = pool_[place];
  wire::AtpHeader header = header_of(packet);
  header.congested |= packet.ecn == Ecn::kCongested;
  const std::uint32_t value = packet.payload;
  const Rank host = packet.target;
  pool_.release(place);
  const Job& job = jobs_[header.job];
  const bool up = header.kind == wire::AtpKind::kGradient;
  for (const std::uint32_t index : up ? job.servers : job.workers) {
    End& end = *ends_[index];
    if (end.host != host) continue;
    if (!up) return on_sum(index, header, value);
    if (header.sequence % job.servers.size() != end.index) continue;
    ++end.gradients;
    add(end, header, value);
    return drive_server(index);
  }
}

void AggregationHosts::add(End& end, const wire::AtpHeader& header, std::uint32_t value) {
  const proto::AtpServerAction action = end.server->on_gradient(header, events_.now());
  if (action.payload == proto::AtpServerAction::Payload::kStore) end.values[action.slot] = value;
  if (action.payload == proto::AtpServerAction::Payload::kAdd) end.values[action.slot] += value;
}

void AggregationHosts::on_sum(std::uint32_t index, const wire::AtpHeader& header,
                              std::uint32_t value) {
  End& end = *ends_[index];
  if (header.kind == wire::AtpKind::kAbort) {
    end.worker->on_abort(header, events_.now());
  } else if (header.kind == wire::AtpKind::kMissing) {
    end.worker->on_missing(header);
  } else {
    const proto::AtpPlacement placement = end.switchml
                                              ? end.switchml->on_result(header, events_.now())
                                              : end.worker->on_parameter(header, events_.now());
    if (placement.verdict == proto::AtpPlacement::Verdict::kPlace)
      placed(end, header.sequence, value);
  }
  drive_worker(index);
}

void AggregationHosts::on_timer(const Event& event) {
  End& end = *ends_[event.subject];
  if (end.timer_ps != events_.now_ps() || end.timer_stamp != event.stamp()) {
    --void_timers_;
    return;
  }
  end.timer_ps = kNoTimer;
  if (end.server) {
    end.server->on_timeout(events_.now());
    return drive_server(event.subject);
  }
  if (end.switchml) {
    end.switchml->on_timeout(events_.now());
  } else {
    end.worker->on_timeout(events_.now());
  }
  drive_worker(event.subject);
}

void AggregationHosts::on_drained(Rank host) {
  lines_.on_drained(host);
  send_in_turn(host);
}

void AggregationHosts::drive_worker(std::uint32_t index) {
  End& end = *ends_[index];
  proto::AtpOutcome outcome;
  while (end.switchml ? end.switchml->poll_event(outcome) : end.worker->poll_event(outcome)) {
    if (!outcome.ok()) fail(end, outcome.error);
  }
  if (!end.in_turn && ready(end)) {
    end.in_turn = true;
    lines_.join(end.host, index);
    send_in_turn(end.host);
  }
  set_timer(index);
  end_flows(end);
}

void AggregationHosts::send_in_turn(Rank host) {
  const auto limit = [this](std::uint32_t index) { return limit_of(*ends_[index]); };
  lines_.serve(host, limit, [this](std::uint32_t index) {
    End& end = *ends_[index];
    end.in_turn = send_one(end) && ready(end);
    set_timer(index);
    return end.in_turn;
  });
}

// An update of SwitchML ends in the switch, so its target may be any host behind that switch.
bool AggregationHosts::send_one(End& end) {
  const Job& job = jobs_[end.job];
  proto::AtpTransmit transmit;
  const bool any = end.switchml ? end.switchml->poll_transmit(events_.now(), transmit)
                                : end.worker->poll_transmit(events_.now(), transmit);
  if (!any) return false;
  if (transmit.own) {
    const std::uint32_t server = job.servers[transmit.server];
    add(*ends_[server], transmit.header,
        contribution_of(end.job, end.index, transmit.header.sequence));
    drive_server(server);
    return true;
  }
  ++end.sent;
  ++counters_.data_packets_sent;
  const Rank target = end.switchml ? job.spec.workers[(end.index + 1) % job.workers.size()]
                                   : job.spec.servers[transmit.server];
  send_from(end, transmit.header, target, PacketKind::kAggregated,
            contribution_of(end.job, end.index, transmit.header.sequence));
  return true;
}

void AggregationHosts::send_from(const End& end, const wire::AtpHeader& header, Rank target,
                                 PacketKind kind, std::uint32_t value) {
  const std::uint32_t place = pool_.allocate();
  PooledPacket& packet = pool_[place];
  put_header(header, packet);
  packet.payload = value;
  packet.source = end.host;
  packet.target = target;
  packet.wire_size =
      static_cast<std::uint32_t>(jobs_[end.job].parameters->header.count()) + 4U * header.elements;
  packet.path_hash = end.path;
  packet.kind = kind;
  packet.priority = 0;
  packet.ecn = header.kind == wire::AtpKind::kUpdate ? Ecn::kNotCapable : Ecn::kCapable;
  packet.echo = false;
  packet.retransmission = header.resend;
  packet.labelled = false;
  fabric_.send(end.host, place);
}

void AggregationHosts::drive_server(std::uint32_t index) {
  End& end = *ends_[index];
  proto::AtpServerTransmit transmit;
  while (end.server->poll_transmit(transmit)) send_sum(end, transmit);
  proto::AtpServerFailure failure;
  while (end.server->poll_event(failure)) fail(end, failure.error);
  set_timer(index);
}

// Switches copy a sum that is for all workers, unless the job does without multicast.
void AggregationHosts::send_sum(End& end, const proto::AtpServerTransmit& transmit) {
  const wire::AtpHeader& header = transmit.header;
  const Job& job = jobs_[end.job];
  const bool abort = header.kind == wire::AtpKind::kAbort;
  const std::uint32_t value = abort ? 0 : end.values[transmit.slot];
  const bool all = abort || header.groups == wire::atp_all(header.group_count);
  const std::optional<std::uint32_t> own = own_worker(end);
  const bool multicast = all && job.parameters->multicast;
  if (multicast) send_from(end, header, end.host, PacketKind::kMulticast, value);
  bool own_named = false;
  for (std::size_t w = 0; w < job.workers.size() && (!multicast || own); ++w) {
    const topology::AggregationGroups::Worker& place = job.groups.workers[w];
    const bool named = all ||
                       (header.groups & wire::atp_bit(static_cast<unsigned>(place.group))) != 0 ||
                       (place.group == header.group &&
                        (header.workers & wire::atp_bit(static_cast<unsigned>(place.index))) != 0);
    if (!named) continue;
    if (own == job.workers[w]) {
      own_named = true;
    } else if (!multicast) {
      send_from(end, header, job.spec.workers[w], PacketKind::kAggregated, value);
    }
  }
  if (own_named) on_sum(*own, header, value);
}

std::optional<std::uint32_t> AggregationHosts::own_worker(const End& server) const {
  const Job& job = jobs_[server.job];
  if (job.seats.empty() || !job.seats[server.index]) return std::nullopt;
  const auto worker = std::ranges::find(job.spec.workers, server.host) - job.spec.workers.begin();
  return job.workers[static_cast<std::size_t>(worker)];
}

std::optional<Time> AggregationHosts::next_timeout(const End& end) const {
  if (end.server) {
    return end.server->open() > 0 ? end.server->next_timeout() : std::nullopt;
  }
  if (end.switchml) return end.switchml->idle() ? std::nullopt : end.switchml->next_timeout();
  return end.worker->idle() ? std::nullopt : end.worker->next_timeout();
}

void AggregationHosts::set_timer(std::uint32_t index) {
  End& end = *ends_[index];
  const std::optional<Time> next = next_timeout(end);
  const bool wanted = next && *next < kHorizon;
  const std::int64_t when =
      wanted ? std::max(next->since_start().ps(), events_.now_ps()) : kNoTimer;
  if (end.timer_ps != kNoTimer) {
    // The event that is set comes no later: if it is too early, it finds nothing to do and is set
    // again.
    if (wanted && end.timer_ps <= when) return;
    ++void_timers_;
  }
  end.timer_ps = when;
  if (wanted) events_.push(when, EventKind::kAggregationTimer, index, 0, ++end.timer_stamp);
}

}  // namespace thalweg::sim
