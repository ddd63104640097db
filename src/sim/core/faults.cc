// The faults of a Fabric. All of them are rare, so they may look at every event.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "sim/core/fabric.h"

namespace thalweg::sim {
namespace {

constexpr std::uint64_t kLossStream = std::uint64_t{2} << 32;

}  // namespace

LinkLoss& Fabric::loss_of(topology::ArcId arc) {
  std::unique_ptr<LinkLoss>& loss = losses_[arc.index()];
  if (!loss) loss = std::make_unique<LinkLoss>(prng_.fork(kLossStream + arc.index()));
  return *loss;
}

void Fabric::set_loss(topology::ArcId arc, double probability) {
  LinkLoss& loss = loss_of(arc);
  loss.set_random(probability);
  ports_[arc.index()].lossy = loss.active();
}

void Fabric::set_bursty_loss(topology::ArcId arc, double good_packets, double bad_packets) {
  LinkLoss& loss = loss_of(arc);
  loss.set_bursty(good_packets, bad_packets);
  ports_[arc.index()].lossy = loss.active();
}

// Drops every packet that waits at the port. Afterwards the port is committed, and idle or busy
// with the packet it is transmitting.
void Fabric::drop_waiting(Port& port, std::uint32_t arc) {
  retire(port);
  if (!port.scheduled) {
    if (port.line.empty()) return;
    uncommit(port, arc);
  }
  while (!port.queues->empty()) {
    const switches::QueueEntry entry = port.queues->pop();
    remove_popped(port, entry);
    drop_at(port, entry.handle, DropReason::kFault);
  }
  ++port.stamp;
  port.scheduled = port.blocked;
}

// Drops the packets whose transmission on the arc has begun and that have not arrived.
void Fabric::drop_under_way(std::uint32_t arc) {
  std::vector<std::uint32_t> lost;
  events_.for_each([&](const Event& event) {
    const bool moves = event.kind() == EventKind::kArrival || event.kind() == EventKind::kDeparture;
    if (!moves || event.arc != arc) return;
    if (pool_[event.subject].stamp == event.stamp()) lost.push_back(event.subject);
  });
  // The order in which places become free decides which packets get them next, so it must not
  // depend on how the event queue stores its events.
  std::sort(lost.begin(), lost.end());
  for (const std::uint32_t place : lost) {
    ++pool_[place].stamp;
    drop_at(ports_[arc], place, DropReason::kFault);
  }
}

void Fabric::set_link_up(topology::LinkId link, bool up) {
  if (link_up_[link.index()] == up) return;
  link_up_[link.index()] = up;
  for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
    const std::size_t arc = link.index() * 2 + side;
    Port& port = ports_[arc];
    port.down = !up;
    if (up) continue;
    drop_waiting(port, static_cast<std::uint32_t>(arc));
    drop_under_way(static_cast<std::uint32_t>(arc));
    port.free_at_ps = events_.now_ps();
  }
  routes_.rebuild(link_up_);
  ++routes_version_;
}

Bandwidth Fabric::set_rate_factor(topology::LinkId link, double factor) {
  CHECK(factor > 0, "rate factor {}", factor);
  const Bandwidth full = topology_.links()[link.index()].spec.rate;
  const double bps = std::round(static_cast<double>(full.bps()) * factor);
  const auto rate = Bandwidth::bits_per_second(std::max<std::int64_t>(1, std::llround(bps)));
  for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
    const std::size_t arc = link.index() * 2 + side;
    Port& port = ports_[arc];
    retire(port);
    if (!port.line.empty()) uncommit(port, static_cast<std::uint32_t>(arc));
    // What begins to leave for another shard just now does so at the old rate.
    std::vector<Event> due;
    events_.for_each([&](const Event& event) {
      const bool departs = event.kind() == EventKind::kDeparture && event.arc == arc;
      if (departs && event.time_ps <= events_.now_ps()) due.push_back(event);
    });
    for (const Event& event : due) {
      if (pool_[event.subject].stamp != event.stamp()) continue;
      depart(event);
      ++pool_[event.subject].stamp;
    }
    port.set_rate(rate);
  }
  return rate;
}

void Fabric::set_delay(topology::LinkId link, Duration delay) {
  CHECK(delay >= Duration(), "a delay of {}", to_string(delay));
  for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
    ports_[link.index() * 2 + side].delay_ps = delay.ps();
  }
}

void Fabric::set_host_paused(Rank host, bool paused) {
  for (const topology::ArcId id : topology_.arcs_from(topology_.host(host))) {
    const auto arc = static_cast<std::uint32_t>(id.value());
    Port& port = ports_[arc];
    if (port.blocked == paused) continue;
    port.blocked = paused;
    if (paused) {
      retire(port);
      if (!port.scheduled) uncommit(port, arc);
      ++port.stamp;
    } else {
      port.scheduled = !port.queues->empty();
      if (port.scheduled) ask_when_free(port, arc);
    }
  }
}

void Fabric::restart_switch(topology::NodeId node) {
  CHECK(!topology_.rank_of(node).valid(), "node {} is a host", topology_.node(node).name);
  for (const topology::ArcId arc : topology_.arcs_from(node)) {
    drop_waiting(ports_[arc.index()], static_cast<std::uint32_t>(arc.value()));
  }
  if (stage_ != nullptr) stage_->on_restart(static_cast<std::uint32_t>(node.value()));
}

}  // namespace thalweg::sim
