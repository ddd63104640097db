#include "sim/hosts/host.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace thalweg::sim {
namespace {

constexpr std::uint64_t kPathStream = std::uint64_t{3} << 32;

}  // namespace

std::size_t Hosts::ConnectionHash::operator()(const Connection& c) const {
  const auto ends =
      (static_cast<std::uint64_t>(static_cast<std::uint32_t>(c.source.value())) << 32) |
      static_cast<std::uint32_t>(c.target.value());
  return std::hash<std::uint64_t>{}(ends) ^ std::hash<const void*>{}(c.transport);
}

Hosts::Hosts(const NetworkOptions& options, EventQueue& events, Fabric& fabric,
             AggregationSwitches& switches, Oracle& oracle, NetworkCounters& counters)
    : events_(events),
      fabric_(fabric),
      pool_(fabric.pool()),
      oracle_(oracle),
      counters_(counters),
      path_prng_(Prng(options.seed).fork(kPathStream)),
      framing_bytes_(options.framing_bytes),
      label_paths_(options.balancing == LoadBalancing::kLabel),
      port_limit_(switches::kNoLimit),
      socket_limit_(static_cast<std::uint64_t>(options.socket_queue.count())),
      lines_(EventKind::kDrained, events, fabric),
      dlcp_(options, events, fabric, counters,
            [this](FlowResult& result, const FlowShape& least) {
              --active_;
              report(result, least);
            }),
      aggregation_(options, events, fabric, switches, counters,
                   [this](FlowResult& result, const FlowShape& shape) {
                     --active_;
                     report(result, shape);
                   }) {
  if (options.host_queue.count() > 0 &&
      options.queues.discipline != QueueOptions::Discipline::kPFabric) {
    port_limit_ = static_cast<std::uint64_t>(options.host_queue.count());
  }
}

FlowId Hosts::start_flow(const FlowSpec& spec) {
  CHECK(spec.bytes > 0 && spec.source != spec.target && spec.transport != nullptr);
  const FlowId id(static_cast<std::int32_t>(flows_.size()));
  if (spec.transport->dlcp() != nullptr) {
    flows_.push_back(nullptr);
    ++active_;
    dlcp_.start_flow(id, spec);
    return id;
  }
  if (spec.transport->aggregation() != nullptr) {
    flows_.push_back(nullptr);
    ++active_;
    aggregation_.start_flow(id, spec);
    return id;
  }
  if (spec.watcher != nullptr) {
    flows_.push_back(nullptr);
    ++active_;
    start_message(id, spec);
    return id;
  }
  flows_.push_back(std::make_unique<Flow>(spec));
  Flow& flow = *flows_.back();
  std::optional<double> window;
  if (spec.warm) {
    const auto kept = windows_.find({spec.transport, spec.source, spec.target});
    if (kept != windows_.end()) window = kept->second;
  }
  flow.sender = spec.transport->make_sender(spec.bytes, window);
  prepare(flow);
  ++active_;
  drive(id, flow);
  return id;
}

// The flow has its sender.
void Hosts::prepare(Flow& flow) {
  flow.header_bytes = flow.spec.transport->header_bytes();
  flow.ack_priority = flow.spec.transport->ack_priority();
  flow.selective = flow.spec.transport->selective();
  const std::uint64_t paths = path_prng_.next();
  flow.data_path = static_cast<std::uint32_t>(paths);
  flow.ack_path = static_cast<std::uint32_t>(paths >> 32);
  if (flow.spec.path >= 0) {
    flow.fixed_path = true;
    flow.data_path = flow.ack_path = static_cast<std::uint32_t>(flow.spec.path);
  }
  flow.start = events_.now();
  flow.sender->start(events_.now());
}

std::optional<FlowProgress> Hosts::progress_of(FlowId id) const {
  const Flow* flow = flows_[id.index()].get();
  if (flow == nullptr) {
    if (const auto progress = streams_.progress_of(id); progress) return progress;
    const auto progress = dlcp_.progress_of(id);
    return progress ? progress : aggregation_.progress_of(id);
  }
  if (flow->ended || flow->stream_sender != nullptr) return std::nullopt;
  return FlowProgress{flow->spec, flow->start, flow->receiver.received_bytes()};
}

void Hosts::on_packet(std::uint32_t place) {
  const PooledPacket& packet = pool_[place];
  if (for_stage(packet.kind)) return aggregation_.on_packet(place);
  if (packet.kind != PacketKind::kData && packet.kind != PacketKind::kAck) {
    return dlcp_.on_packet(place);
  }
  Flow* flow = flows_[packet.flow.index()].get();
  if (flow == nullptr) {
    pool_.release(place);
  } else if (packet.kind == PacketKind::kData) {
    on_data(place, *flow);
  } else {
    on_ack(place, *flow);
  }
}

// The acknowledgement reuses the packet that it answers.
void Hosts::on_data(std::uint32_t place, Flow& flow) {
  PooledPacket& packet = pool_[place];
  const FlowId id = packet.flow;
  const std::uint64_t sequence = packet.sequence;
  const std::uint32_t payload = packet.payload;
  const std::uint64_t expected = flow.receiver.on_data(sequence, payload);
  packet.sequence = expected;
  packet.kind = PacketKind::kAck;
  std::swap(packet.source, packet.target);
  packet.payload = 0;
  packet.wire_size = flow.header_bytes;
  packet.rank_in_queue = 0;
  packet.path_hash = path_of(flow, flow.ack_path);
  packet.priority = flow.ack_priority;
  packet.echo = packet.ecn == Ecn::kCongested;
  packet.ecn = Ecn::kNotCapable;
  if (flow.selective) [[unlikely]] {
    add_sack(place, flow, sequence, payload);
  }
  fabric_.send(packet.source, place);
  if (flow.stream_sender != nullptr) {
    streams_.on_prefix(flow.stream, expected, [this, &flow](const Streams::Message& message) {
      end_message(flow, message);
    });
  } else if (flow.receiver.complete() && !flow.ended) {
    end_flow(id, flow);
  }
}

void Hosts::add_sack(std::uint32_t place, Flow& flow, std::uint64_t sequence,
                     std::uint32_t payload) {
  if (place >= sacks_.size()) sacks_.resize(pool_.peak());
  sacks_[place] = flow.receiver.sack(sequence, payload);
  pool_[place].wire_size += sacks_[place].wire_size();
}

void Hosts::on_ack(std::uint32_t place, Flow& flow) {
  const PooledPacket& packet = pool_[place];
  const FlowId id = packet.flow;
  const SackBlocks* const sack = flow.selective ? &sacks_[place] : nullptr;
  const Acknowledgement ack{packet.sequence, packet.sent, packet.retransmission, packet.echo, sack};
  pool_.release(place);
  flow.sender->on_ack(events_.now(), ack);
  drive(id, flow);
}

void Hosts::drive(FlowId id, Flow& flow) {
  if (socket_limit_ > 0) {
    if (!flow.in_turn) {
      flow.in_turn = fill_socket(id, flow);
      if (flow.in_turn) lines_.join(flow.spec.source, static_cast<std::uint32_t>(id.value()));
      if (flow.in_turn) lines_.watch(flow.spec.source, socket_limit_ / 2);
    }
  } else if (port_limit_ == switches::kNoLimit) {
    SegmentToSend segment;
    while (poll(flow, segment)) send_segment(id, flow, segment);
  } else {
    if (!flow.in_turn) lines_.join(flow.spec.source, static_cast<std::uint32_t>(id.value()));
    flow.in_turn = true;
    send_in_turn(flow.spec.source);
  }
  if (!flow.sender->done()) {
    set_timer(id, flow);
    return;
  }
  keep_window(flow);
  if (flow.timer_ps != kNoTimer) ++void_timers_;
  flows_[id.index()].reset();
}

bool Hosts::fill_socket(FlowId id, Flow& flow) {
  SegmentToSend segment;
  while (fabric_.socket_backlog(PacketKind::kData, id) < socket_limit_) {
    if (!poll(flow, segment)) return false;
    send_segment(id, flow, segment);
  }
  return true;
}

void Hosts::fill_sockets(Rank host) {
  lines_.serve_all(host, socket_limit_ / 2, [this](std::uint32_t index) {
    Flow* const flow = flows_[index].get();
    if (flow == nullptr) return false;
    const FlowId id(static_cast<std::int32_t>(index));
    flow->in_turn = fill_socket(id, *flow);
    set_timer(id, *flow);
    return flow->in_turn;
  });
}

void Hosts::send_in_turn(Rank host) {
  const auto limit_of = [this](std::uint32_t /*index*/) { return port_limit_; };
  lines_.serve(host, limit_of, [this](std::uint32_t index) {
    Flow* const flow = flows_[index].get();
    if (flow == nullptr) return false;
    const FlowId id(static_cast<std::int32_t>(index));
    SegmentToSend segment;
    flow->in_turn = poll(*flow, segment);
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
  packet.path_hash = path_of(flow, flow.data_path);
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
  events_.push(when, EventKind::kTimer, static_cast<std::uint32_t>(id.value()), 0,
               ++flow.timer_stamp);
}

void Hosts::on_timer(const Event& event) {
  Flow* flow = flows_[event.subject].get();
  if (flow == nullptr || flow->timer_stamp != event.stamp()) {
    --void_timers_;
    return;
  }
  flow->timer_ps = kNoTimer;
  const FlowId id(static_cast<std::int32_t>(event.subject));
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

void Hosts::end_flow(FlowId id, Flow& flow) {
  flow.ended = true;
  --active_;
  keep_window(flow);
  const FlowShape shape{flow.spec.bytes, flow.largest, flow.smallest, flow.uniform,
                        flow.header_bytes + framing_bytes_};
  FlowResult result;
  result.id = id;
  result.spec = flow.spec;
  result.start = flow.start;
  result.end = events_.now();
  result.counters = flow.sender->counters();
  report(result, shape);
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
  if (idle) streams_.check_idle(violations);
  aggregation_.check(violations);
  if (faster_than_oracle_ == 0) return;
  violations.push_back(fmt::format("{} flows were faster than their oracle; the first: {}",
                                   faster_than_oracle_, first_faster_));
}

}  // namespace thalweg::sim
