#include "sim/hosts/host.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace thalweg::sim {
namespace {

constexpr std::uint64_t kPathStream = std::uint64_t{3} << 32;
constexpr std::uint32_t kMostFlows = 1U << 31;

}  // namespace

std::size_t Hosts::ConnectionHash::operator()(const Connection& c) const {
  const auto ends =
      (static_cast<std::uint64_t>(static_cast<std::uint32_t>(c.source.value())) << 32) |
      static_cast<std::uint32_t>(c.target.value());
  return std::hash<std::uint64_t>{}(ends) ^ std::hash<const void*>{}(c.transport);
}

Hosts::Hosts(const NetworkOptions& options, EventQueue& events, Fabric& fabric,
             AggregationSwitches& switches, Oracle& oracle, NetworkCounters& counters,
             const ShardMap& shards, std::size_t shard, Post& post)
    : events_(events),
      fabric_(fabric),
      pool_(fabric.pool()),
      oracle_(oracle),
      counters_(counters),
      shards_(shards),
      shard_(shard),
      flow_shift_(shards.flow_shift()),
      post_(post),
      framing_bytes_(options.framing_bytes),
      label_paths_(options.balancing == LoadBalancing::kLabel),
      port_limit_(switches::kNoLimit),
      socket_limit_(static_cast<std::uint64_t>(options.socket_queue.count())),
      lines_(EventKind::kDrained, events, fabric),
      flows_of_(static_cast<std::size_t>(fabric.host_count()), 0),
      incoming_(shards.count()),
      next_incoming_(shards.count(), 0),
      dlcp_(
          options, events, fabric, counters,
          [this](FlowResult& result, const FlowShape& least) { end_other(result, least, false); }),
      aggregation_(
          options, events, fabric, switches, counters,
          [this](FlowResult& result, const FlowShape& shape) { end_other(result, shape, true); }) {
  for (int h = 0; h < fabric.host_count(); ++h) {
    path_prngs_.push_back(Prng(options.seed).fork(kPathStream + static_cast<std::uint64_t>(h)));
  }
  if (options.host_queue.count() > 0 &&
      options.queues.discipline != QueueOptions::Discipline::kPFabric) {
    port_limit_ = static_cast<std::uint64_t>(options.host_queue.count());
  }
}

std::size_t Hosts::shard_of(Rank host) const { return shards_.of_node(fabric_.node_of(host)); }

FlowId Hosts::start_flow(const FlowSpec& spec, FlowHooks hooks) {
  CHECK(spec.bytes > 0 && spec.source != spec.target && spec.transport != nullptr);
  const std::size_t index = flows_.size();
  CHECK(index < std::size_t{kMostFlows} >> flow_shift_, "more than {} flows", kMostFlows);
  const FlowId id(static_cast<std::int32_t>(index << flow_shift_ | shard_));
  const std::uint64_t number = flows_of_[spec.source.index()]++;
  flows_.push_back(nullptr);
  ++active_;
  const bool dlcp = spec.transport->dlcp() != nullptr;
  if (!dlcp && spec.transport->aggregation() == nullptr) {
    start_tcp(index, id, spec, std::move(hooks));
    return id;
  }
  CHECK(shards_.count() == 1, "only flows of TCP and similar transports lead to other shards");
  OtherFlow& other = others_[index];
  other.hooks = std::move(hooks);
  other.number = number;
  if (dlcp) {
    dlcp_.start_flow(id, spec);
  } else {
    aggregation_.start_flow(id, spec);
  }
  return id;
}

void Hosts::start_tcp(std::size_t index, FlowId id, const FlowSpec& spec, FlowHooks hooks) {
  flows_[index] = std::make_unique<Flow>(spec);
  Flow& flow = *flows_[index];
  auto incoming = std::make_unique<IncomingFlow>(spec);
  std::optional<double> window;
  if (spec.warm) {
    const auto kept = windows_.find({spec.transport, spec.source, spec.target});
    if (kept != windows_.end()) window = kept->second;
  }
  flow.sender = spec.transport->make_sender(spec.bytes, window);
  flow.number = flows_of_[spec.source.index()] - 1;
  flow.finished = std::move(hooks.finished);
  incoming->arrived = std::move(hooks.arrived);
  incoming->id = id;
  flow.header_bytes = incoming->header_bytes = spec.transport->header_bytes();
  incoming->ack_priority = spec.transport->ack_priority();
  const std::uint64_t paths = path_prngs_[spec.source.index()].next();
  flow.data_path = static_cast<std::uint32_t>(paths);
  incoming->ack_path = static_cast<std::uint32_t>(paths >> 32);
  if (spec.path >= 0) {
    flow.fixed_path = incoming->fixed_path = true;
    flow.data_path = incoming->ack_path = static_cast<std::uint32_t>(spec.path);
  }
  flow.start = incoming->start = events_.now();
  flow.notice_ps = incoming->notice_ps = oracle_.propagation_time(spec.target, spec.source).ps();
  const std::size_t there = shard_of(spec.target);
  flow.incoming = next_incoming_[there]++;
  if (there == shard_) {
    incoming_[shard_].push_back(std::move(incoming));
  } else {
    post_.send(there, std::move(incoming));
  }
  flow.sender->start(events_.now());
  drive(id, flow);
}

std::optional<FlowProgress> Hosts::progress_of(FlowId id) const {
  CHECK(shards_.count() == 1);
  const Flow* flow = flows_[id.index()].get();
  if (flow == nullptr) {
    const auto progress = dlcp_.progress_of(id);
    if (progress) return progress;
    // A flow that has ended, but has not been reported yet, has all its bytes.
    const auto other = others_.find(id.index());
    if (other == others_.end() || other->second.shape.bytes == 0) {
      return aggregation_.progress_of(id);
    }
    const FlowResult& result = other->second.result;
    return FlowProgress{result.spec, result.start, result.spec.bytes};
  }
  if (flow->reported) return std::nullopt;
  const IncomingFlow* incoming = incoming_[0][flow->incoming].get();
  return FlowProgress{flow->spec, flow->start,
                      incoming == nullptr ? flow->spec.bytes : incoming->receiver.received_bytes()};
}

void Hosts::receive(std::size_t from_shard, Letters& letters) {
  for (auto& flow : letters.flows) incoming_[from_shard].push_back(std::move(flow));
  for (const EndedLetter& letter : letters.ended) {
    const std::size_t index = index_of(letter.flow);
    flows_[index]->end = letter.end;
    events_.push(letter.time_ps, EventKind::kFlowEnded, static_cast<std::uint32_t>(index), 0, 0);
  }
  for (const ClosedLetter& letter : letters.closed) expect_closed(from_shard, letter);
}

void Hosts::on_packet(std::uint32_t place) {
  const PooledPacket& packet = pool_[place];
  if (for_stage(packet.kind)) return aggregation_.on_packet(place);
  if (packet.kind == PacketKind::kData) {
    const std::size_t source_shard = packet.flow.index() & ((std::size_t{1} << flow_shift_) - 1);
    IncomingFlow* const flow = incoming_[source_shard][packet.incoming].get();
    return flow == nullptr ? pool_.release(place) : on_data(place, *flow);
  }
  if (packet.kind != PacketKind::kAck) return dlcp_.on_packet(place);
  Flow* const flow = flows_[index_of(packet.flow)].get();
  if (flow == nullptr || flow->closed) {
    pool_.release(place);
  } else {
    on_ack(place, *flow);
  }
}

// The acknowledgement reuses the packet that it answers.
void Hosts::on_data(std::uint32_t place, IncomingFlow& flow) {
  PooledPacket& packet = pool_[place];
  packet.sequence = flow.receiver.on_data(packet.sequence, packet.payload);
  packet.kind = PacketKind::kAck;
  std::swap(packet.source, packet.target);
  packet.payload = 0;
  packet.wire_size = flow.header_bytes;
  packet.rank_in_queue = 0;
  packet.path_hash = path_of(flow.fixed_path, flow.ack_path);
  packet.priority = flow.ack_priority;
  packet.echo = packet.ecn == Ecn::kCongested;
  packet.ecn = Ecn::kNotCapable;
  fabric_.send(packet.source, place);
  if (flow.receiver.complete() && !flow.ended) end_incoming(flow);
}

void Hosts::on_ack(std::uint32_t place, Flow& flow) {
  const PooledPacket& packet = pool_[place];
  const FlowId id = packet.flow;
  const Acknowledgement ack{packet.sequence, packet.sent, packet.retransmission, packet.echo};
  pool_.release(place);
  flow.sender->on_ack(events_.now(), ack);
  drive(id, flow);
}

void Hosts::drive(FlowId id, Flow& flow) {
  if (socket_limit_ > 0) {
    if (!flow.in_turn) {
      flow.in_turn = fill_socket(id, flow);
      if (flow.in_turn) lines_.join(flow.spec.source, static_cast<std::uint32_t>(index_of(id)));
      if (flow.in_turn) lines_.watch(flow.spec.source, socket_limit_ / 2);
    }
  } else if (port_limit_ == switches::kNoLimit) {
    SegmentToSend segment;
    while (flow.sender->poll_transmit(events_.now(), segment)) send_segment(id, flow, segment);
  } else {
    if (!flow.in_turn) lines_.join(flow.spec.source, static_cast<std::uint32_t>(index_of(id)));
    flow.in_turn = true;
    send_in_turn(flow.spec.source);
  }
  if (!flow.sender->done()) {
    set_timer(id, flow);
    return;
  }
  close(index_of(id), flow);
}

bool Hosts::fill_socket(FlowId id, Flow& flow) {
  SegmentToSend segment;
  while (fabric_.socket_backlog(PacketKind::kData, id) < socket_limit_) {
    if (!flow.sender->poll_transmit(events_.now(), segment)) return false;
    send_segment(id, flow, segment);
  }
  return true;
}

void Hosts::fill_sockets(Rank host) {
  lines_.serve_all(host, socket_limit_ / 2, [this](std::uint32_t index) {
    Flow* const flow = flows_[index].get();
    if (flow == nullptr || flow->closed) return false;
    const FlowId id(static_cast<std::int32_t>(std::size_t{index} << flow_shift_ | shard_));
    flow->in_turn = fill_socket(id, *flow);
    set_timer(id, *flow);
    return flow->in_turn;
  });
}

void Hosts::send_in_turn(Rank host) {
  const auto limit_of = [this](std::uint32_t /*index*/) { return port_limit_; };
  lines_.serve(host, limit_of, [this](std::uint32_t index) {
    Flow* const flow = flows_[index].get();
    if (flow == nullptr || flow->closed) return false;
    const FlowId id(static_cast<std::int32_t>(std::size_t{index} << flow_shift_ | shard_));
    SegmentToSend segment;
    flow->in_turn = flow->sender->poll_transmit(events_.now(), segment);
    if (!flow->in_turn) return false;
    send_segment(id, *flow, segment);
    set_timer(id, *flow);
    return true;
  });
}

void Hosts::on_drained(Rank host) {
  if (socket_limit_ > 0) {
    lines_.on_drained(host);
    fill_sockets(host);
  } else if (port_limit_ != switches::kNoLimit) {
    lines_.on_drained(host);
    send_in_turn(host);
  }
}

void Hosts::send_segment(FlowId id, Flow& flow, const SegmentToSend& segment) {
  if (segment.payload != flow.largest) note_size(flow, segment);
  const std::uint32_t place = pool_.allocate();
  PooledPacket& packet = pool_[place];
  packet.sequence = segment.sequence;
  packet.sent = events_.now();
  packet.flow = id;
  packet.source = flow.spec.source;
  packet.target = flow.spec.target;
  packet.payload = segment.payload;
  packet.wire_size = segment.payload + flow.header_bytes;
  packet.rank_in_queue = segment.rank_in_queue;
  packet.path_hash = path_of(flow.fixed_path, flow.data_path);
  packet.incoming = flow.incoming;
  packet.kind = PacketKind::kData;
  packet.priority = segment.priority;
  packet.ecn = segment.ecn;
  packet.echo = false;
  packet.retransmission = segment.retransmission;
  packet.labelled = flow.fixed_path;
  ++counters_.data_packets_sent;
  fabric_.send(flow.spec.source, place);
}

void Hosts::note_size(Flow& flow, const SegmentToSend& segment) {
  const bool last = segment.sequence + segment.payload == flow.spec.bytes;
  const bool first = flow.largest == 0;
  if (!first && !(last && segment.payload < flow.largest)) flow.uniform = false;
  flow.smallest = first ? segment.payload : std::min(flow.smallest, segment.payload);
  flow.largest = std::max(flow.largest, segment.payload);
}

void Hosts::set_timer(FlowId id, Flow& flow) {
  const std::optional<Time> timeout = flow.sender->next_timeout();
  if (!timeout) return;
  const std::int64_t when = std::max(timeout->since_start().ps(), events_.now_ps());
  if (flow.timer_ps != kNoTimer && flow.timer_ps <= when) return;
  if (flow.timer_ps != kNoTimer) ++void_timers_;
  flow.timer_ps = when;
  events_.push(when, EventKind::kTimer, static_cast<std::uint32_t>(index_of(id)), 0,
               ++flow.timer_stamp);
}

void Hosts::on_timer(const Event& event) {
  Flow* flow = flows_[event.subject].get();
  if (flow == nullptr || flow->closed || flow->timer_stamp != event.stamp()) {
    --void_timers_;
    return;
  }
  flow->timer_ps = kNoTimer;
  const FlowId id(static_cast<std::int32_t>(std::size_t{event.subject} << flow_shift_ | shard_));
  const std::optional<Time> timeout = flow->sender->next_timeout();
  if (!timeout) return;
  if (*timeout > events_.now()) {
    set_timer(id, *flow);
    return;
  }
  const std::uint64_t before = flow->sender->counters().timeouts;
  flow->sender->on_timeout(events_.now());
  counters_.timeouts += flow->sender->counters().timeouts - before;
  drive(id, *flow);
}

void Hosts::report(FlowResult& result, const FlowShape& shape) {
  result.oracle = oracle_.completion_time(result.spec.source, result.spec.target, shape);
  result.asked = result.spec.asked.value_or(result.start);
  const Duration taken = result.end - result.start;
  if (taken < result.oracle && faster_than_oracle_++ == 0) {
    first_faster_ = fmt::format("flow {} took {}, its oracle {}", result.id.value(),
                                to_string(taken), to_string(result.oracle));
  }
  for (const auto& callback : callbacks_) callback(result);
}

void Hosts::keep_window(const Flow& flow) {
  if (!flow.spec.warm) return;
  windows_[{flow.spec.transport, flow.spec.source, flow.spec.target}] = flow.sender->window();
}

void Hosts::on_flow_done(std::function<void(const FlowResult&)> callback) {
  callbacks_.push_back(std::move(callback));
}

void Hosts::check(bool idle, std::vector<std::string>& violations) const {
  dlcp_.check(idle, violations);
  aggregation_.check(violations);
  if (faster_than_oracle_ == 0) return;
  violations.push_back(fmt::format("{} flows were faster than their oracle; the first: {}",
                                   faster_than_oracle_, first_faster_));
}

}  // namespace thalweg::sim
