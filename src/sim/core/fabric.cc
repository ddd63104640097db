#include "sim/core/fabric.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "switch/queueing/classify.h"

namespace thalweg::sim {
namespace {

// The network's generator has one stream for each use, so that uses do not disturb each other.
constexpr std::uint64_t kSwitchStream = std::uint64_t{1} << 32;

std::uint64_t limit_of(Bytes bytes) {
  return bytes.count() == 0 ? switches::kNoLimit : static_cast<std::uint64_t>(bytes.count());
}

switches::Discipline discipline_of(QueueOptions::Discipline discipline) {
  switch (discipline) {
    case QueueOptions::Discipline::kFifo:
      return switches::Discipline::kFifo;
    case QueueOptions::Discipline::kStrictPriority:
      return switches::Discipline::kStrictPriority;
    case QueueOptions::Discipline::kPFabric:
      return switches::Discipline::kPFabric;
  }
  return switches::Discipline::kFifo;
}

switches::PathChoice choice_of(LoadBalancing balancing) {
  switch (balancing) {
    case LoadBalancing::kFlowHash:
      return switches::PathChoice::kFlowHash;
    case LoadBalancing::kPerPacket:
      return switches::PathChoice::kPerPacket;
    case LoadBalancing::kLabel:
      return switches::PathChoice::kLabel;
  }
  return switches::PathChoice::kFlowHash;
}

}  // namespace

Fabric::Fabric(const topology::Topology& topology, const NetworkOptions& options,
               EventQueue& events, NetworkCounters& counters)
    : topology_(topology),
      events_(events),
      counters_(counters),
      prng_(options.seed),
      framing_bytes_(options.framing_bytes),
      discipline_(discipline_of(options.queues.discipline)),
      ports_(topology.arc_count()),
      arc_bytes_(topology.arc_count(), 0),
      routes_(topology),
      shared_limit_(limit_of(options.queues.shared_buffer)),
      shared_bytes_(topology.nodes().size(), 0),
      link_up_(topology.links().size(), true),
      losses_(topology.arc_count()) {
  policy_.mark_above(options.queues.mark_above, options.queues.per_port_marking);
  policy_.drop_selectively_above(options.queues.selective_threshold, options.queues.selective_step);
  if (!options.queues.selective_thresholds.empty()) {
    policy_.drop_selectively_above(options.queues.selective_thresholds);
  }
  if (!options.queues.queue_limits.empty()) policy_.limit_queues(options.queues.queue_limits);
  policy_.reserve_for_control(options.queues.control_reserve);
  for (std::size_t a = 0; a < ports_.size(); ++a) {
    make_port(topology::ArcId(static_cast<std::int32_t>(a)), options.queues);
    ports_[a].counts_sockets = ports_[a].from_host && options.socket_queue.count() > 0;
  }
  choosers_.reserve(topology.nodes().size());
  for (std::size_t n = 0; n < topology.nodes().size(); ++n) {
    choosers_.emplace_back(choice_of(options.balancing), prng_.fork(kSwitchStream + n));
  }
}

void Fabric::make_port(topology::ArcId id, const QueueOptions& options) {
  const topology::Arc arc = topology_.arc(id);
  Port& port = ports_[id.index()];
  port.set_rate(arc.spec.rate);
  port.delay_ps = arc.spec.delay.ps();
  port.from_host = topology_.rank_of(arc.from).valid();
  port.to_rank = topology_.rank_of(arc.to).value();
  port.from_node = static_cast<std::uint32_t>(arc.from.value());
  port.to_node = static_cast<std::uint32_t>(arc.to.value());
  // A host drops nothing, and sends by priority whatever the switches do; only under pFabric, whose
  // priorities are ranks, does it order its packets by rank.
  if (port.from_host) {
    port.discipline = discipline_ == switches::Discipline::kPFabric
                          ? switches::Discipline::kPFabric
                          : switches::Discipline::kStrictPriority;
    return;
  }
  port.discipline = discipline_;
  port.limit = limit_of(options.port_buffer.count() > 0 ? options.port_buffer : arc.spec.buffer);
}

void Fabric::prefetch(const Event& event) const {
  if (event.kind() != EventKind::kArrival) return;
  pool_.prefetch(event.subject);
  __builtin_prefetch(&ports_[event.arc]);
}

void Fabric::send(Rank host, std::uint32_t packet) {
  ++counters_.packets_sent;
  counters_.bytes_sent += pool_[packet].wire_size;
  forward(static_cast<std::uint32_t>(topology_.host(host).value()), packet);
}

bool Fabric::arrive(const Event& event) {
  const PooledPacket& packet = pool_[event.subject];
  if (packet.stamp != event.stamp()) return false;
  ++counters_.packet_hops;
  arc_bytes_[event.arc] += packet.wire_size;
  Port& port = ports_[event.arc];
  if (port.lossy && losses_[event.arc]->loses()) [[unlikely]] {
    drop_at(port, event.subject, DropReason::kFault);
    return false;
  }
  if (port.to_rank < 0) {
    if (for_stage(packet.kind) && stage_ != nullptr) {
      stage_->on_packet(port.to_node, event.subject);
    } else {
      forward(port.to_node, event.subject);
    }
    return false;
  }
  ++counters_.packets_delivered;
  counters_.bytes_delivered += packet.wire_size;
  return true;
}

void Fabric::forward(std::uint32_t node, std::uint32_t place) {
  PooledPacket& packet = pool_[place];
  const auto hops = routes_.hops(node, static_cast<std::uint32_t>(packet.target.value()));
  if (hops.empty()) [[unlikely]]
    return drop(place, DropReason::kFault);
  std::uint32_t choice = 0;
  if (hops.size() > 1) {
    const auto count = static_cast<std::uint32_t>(hops.size());
    choice = packet.labelled ? switches::take_label(packet.path_hash, count)
                             : choosers_[node].choose(packet.path_hash, count);
  }
  enqueue(hops[choice], place);
}

std::uint32_t Fabric::copy(std::uint32_t place) { return copy(place, pool_[place].wire_size); }

std::uint32_t Fabric::copy(std::uint32_t place, std::uint32_t wire_size) {
  const std::uint32_t made = pool_.allocate();
  static_cast<Packet&>(pool_[made]) = static_cast<const Packet&>(pool_[place]);
  pool_[made].wire_size = wire_size;
  ++counters_.packets_copied;
  counters_.bytes_copied += pool_[made].wire_size;
  return made;
}

void Fabric::absorb(std::uint32_t place) {
  ++counters_.packets_absorbed;
  counters_.bytes_absorbed += pool_[place].wire_size;
  pool_.release(place);
}

void Fabric::enqueue(std::uint32_t arc, std::uint32_t place) {
  Port& port = ports_[arc];
  if (port.down) [[unlikely]]
    return drop_at(port, place, DropReason::kFault);
  retire(port);
  // A free transmitter takes the packet at once: nothing waits, so no rule of admission can apply.
  if (!port.scheduled && port.free_at_ps <= events_.now_ps()) {
    transmit(port, arc, place, events_.now_ps());
    return;
  }
  const std::uint8_t queue = switches::queue_of_priority(pool_[place].priority);
  if (port.from_host || admit(port, place, queue)) wait(port, arc, place, queue);
}

bool Fabric::admit(Port& port, std::uint32_t place, std::uint8_t queue) {
  PooledPacket& packet = pool_[place];
  switches::AdmissionPolicy::Occupancy occupancy{port.waiting_bytes, port.waiting_bytes,
                                                 port.limit};
  if (port.discipline == switches::Discipline::kStrictPriority) {
    if (port.scheduled) {
      occupancy.queue_bytes = port.queues->queue_bytes(queue);
    } else if (queue != port.line_class) {
      occupancy.queue_bytes = 0;
    }
  }
  const bool capable = packet.ecn != Ecn::kNotCapable;
  switches::Verdict verdict = policy_.decide(occupancy, queue, packet.wire_size, capable);
  if (verdict == switches::Verdict::kDropPortFull && find_room(port, entry_of(place))) {
    occupancy.port_bytes = occupancy.queue_bytes = port.waiting_bytes;
    verdict = policy_.decide(occupancy, queue, packet.wire_size, capable);
  }
  if (switches::accepted(verdict) && shared_limit_ != switches::kNoLimit &&
      !fits_shared(port, packet.wire_size)) {
    verdict = switches::Verdict::kDropShared;
  }
  switch (verdict) {
    case switches::Verdict::kAccept:
      return true;
    case switches::Verdict::kAcceptMarked:
      packet.ecn = Ecn::kCongested;
      ++counters_.marks;
      return true;
    case switches::Verdict::kDropPortFull:
    case switches::Verdict::kDropQueueFull:
    case switches::Verdict::kDropShared:
      drop_at(port, place, DropReason::kFull);
      return false;
    case switches::Verdict::kDropSelective:
      drop_at(port, place, DropReason::kSelective);
      return false;
  }
  return false;
}

// Drops waiting packets that the discipline values less than the arrival. Returns whether the
// arrival fits then.
bool Fabric::find_room(Port& port, const switches::QueueEntry& arrival) {
  if (!port.scheduled) return false;
  switches::QueueEntry victim;
  while (port.waiting_bytes + arrival.size > port.limit) {
    if (!port.queues->make_room(arrival, victim)) return false;
    remove_waiting(port, victim.size);
    drop_at(port, victim.handle, DropReason::kFull);
  }
  return true;
}

// A port's line is brought up to date only when the port is looked at, so the sum over a switch's
// ports may be too large, but never too small: only an arrival that seems not to fit must look at
// all ports.
bool Fabric::fits_shared(const Port& port, std::uint32_t size) {
  const std::uint64_t& held = shared_bytes_[port.from_node];
  if (held + size <= shared_limit_) return true;
  const topology::NodeId node(static_cast<std::int32_t>(port.from_node));
  for (const topology::ArcId arc : topology_.arcs_from(node)) retire(ports_[arc.index()]);
  return held + size <= shared_limit_;
}

void Fabric::transmit(Port& port, std::uint32_t arc, std::uint32_t place, std::int64_t start_ps) {
  const PooledPacket& packet = pool_[place];
  port.free_at_ps = start_ps + port.transmission_ps(packet.wire_size + framing_bytes_);
  const std::int64_t arrival_ps = port.free_at_ps + port.delay_ps;
  if (!port.leaves_shard) [[likely]] {
    events_.push(arrival_ps, EventKind::kArrival, place, arc, packet.stamp);
  } else if (start_ps <= events_.now_ps()) {
    post_packet(arc, place, arrival_ps);
  } else {
    events_.push(start_ps, EventKind::kDeparture, place, arc, packet.stamp);
  }
}

void Fabric::wait(Port& port, std::uint32_t arc, std::uint32_t place, std::uint8_t queue) {
  const std::uint32_t size = pool_[place].wire_size;
  add_waiting(port, size);
  if (!port.scheduled) {
    const bool in_order = port.line.empty() || port.line_class == queue;
    const bool fifo = port.discipline == switches::Discipline::kFifo;
    if (fifo || (in_order && !port.counts_sockets &&
                 port.discipline == switches::Discipline::kStrictPriority)) {
      port.line_class = queue;
      port.line.push({port.free_at_ps, place, size});
      transmit(port, arc, place, port.free_at_ps);
      return;
    }
    uncommit(port, arc);
  }
  port.queues->push(entry_of(place));
  if (!port.counts_sockets) return;
  if (std::uint64_t* const socket = socket_of(pool_[place])) *socket += size;
}

void Fabric::retire(Port& port) {
  const std::int64_t now_ps = events_.now_ps();
  while (!port.line.empty() && port.line.front().start_ps <= now_ps) {
    remove_waiting(port, port.line.front().size);
    port.line.pop();
  }
}

void Fabric::uncommit(Port& port, std::uint32_t arc) {
  if (!port.queues) port.queues = std::make_unique<switches::EgressQueues>(port.discipline);
  if (!port.line.empty()) port.free_at_ps = port.line.front().start_ps;
  for (std::uint32_t i = 0; i < port.line.size(); ++i) {
    const std::uint32_t place = port.line.at(i).packet;
    ++pool_[place].stamp;
    port.queues->push(entry_of(place));
  }
  port.line.clear();
  port.scheduled = true;
  ask_when_free(port, arc);
}

void Fabric::ask_when_free(Port& port, std::uint32_t arc) {
  const std::int64_t when = std::max(port.free_at_ps, events_.now_ps());
  events_.push(when, EventKind::kPortFree, 0, arc, ++port.stamp);
}

void Fabric::on_port_free(const Event& event) {
  Port& port = ports_[event.arc];
  if (port.stamp != event.stamp()) return;
  const switches::QueueEntry entry = port.queues->pop();
  remove_popped(port, entry);
  transmit(port, event.arc, entry.handle, events_.now_ps());
  port.scheduled = !port.queues->empty();
  if (port.scheduled) ask_when_free(port, event.arc);
}

void Fabric::add_waiting(Port& port, std::uint32_t size) {
  port.waiting_bytes += size;
  port.peak_bytes = std::max(port.peak_bytes, port.waiting_bytes);
  if (shared_limit_ != switches::kNoLimit) {
    std::uint64_t& held = shared_bytes_[port.from_node];
    held += size;
    if (!port.from_host) shared_peak_ = std::max(shared_peak_, held);
  }
}

void Fabric::remove_waiting(Port& port, std::uint32_t size) {
  port.waiting_bytes -= size;
  if (shared_limit_ != switches::kNoLimit) shared_bytes_[port.from_node] -= size;
}

void Fabric::remove_popped(Port& port, const switches::QueueEntry& entry) {
  remove_waiting(port, entry.size);
  if (!port.counts_sockets) return;
  if (std::uint64_t* const socket = socket_of(pool_[entry.handle])) *socket -= entry.size;
}

std::uint64_t* Fabric::socket_of(const PooledPacket& packet) {
  const bool tcp = packet.kind == PacketKind::kData;
  if (!tcp && packet.kind != PacketKind::kDlcpData) return nullptr;
  std::vector<std::uint64_t>& sockets = tcp ? tcp_sockets_ : dlcp_sockets_;
  const std::size_t index = packet.flow.index() >> flow_shift_;
  if (index >= sockets.size()) sockets.resize(2 * index + 1, 0);
  return &sockets[index];
}

switches::QueueEntry Fabric::entry_of(std::uint32_t place) const {
  const PooledPacket& packet = pool_[place];
  // A flow's acknowledgements need not stay in order with its data.
  const auto flow = static_cast<std::uint32_t>(packet.flow.value()) * 2 +
                    (packet.kind == PacketKind::kAck ? 1U : 0U);
  return {place, packet.wire_size, flow, packet.rank_in_queue,
          switches::queue_of_priority(packet.priority)};
}

void Fabric::drop_at(Port& port, std::uint32_t place, DropReason reason) {
  ++port.drops;
  drop(place, reason);
}

void Fabric::drop(std::uint32_t place, DropReason reason) {
  switch (reason) {
    case DropReason::kFull:
      ++counters_.drops_full;
      break;
    case DropReason::kSelective:
      ++counters_.drops_selective;
      break;
    case DropReason::kFault:
      ++counters_.drops_fault;
      break;
  }
  counters_.bytes_dropped += pool_[place].wire_size;
  pool_.release(place);
}

std::uint64_t Fabric::host_backlog(Rank host) {
  std::uint64_t bytes = 0;
  for (const topology::ArcId arc : topology_.arcs_from(topology_.host(host))) {
    Port& port = ports_[arc.index()];
    retire(port);
    bytes += port.waiting_bytes;
  }
  return bytes;
}

}  // namespace thalweg::sim
