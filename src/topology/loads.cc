#include "topology/loads.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace thalweg::topology {

ArcLoads::ArcLoads(const Topology& topology, const Routing& routing)
    : topology_(topology),
      routing_(routing),
      loads_(topology.arc_count()),
      waiting_(routing.destinations_.size()),
      orders_(routing.destinations_.size()) {}

void ArcLoads::add_to_arc(ArcId arc, double bytes, double flows) {
  ArcLoad& load = loads_[arc.index()];
  load.bytes += bytes;
  load.flows += flows;
  load.shares += flows;
}

void ArcLoads::add_to_core(std::int32_t destination, std::int32_t core, Traffic traffic) {
  const auto d = static_cast<std::size_t>(destination);
  std::vector<ArcLoad>& row = waiting_[d];
  if (row.empty()) {
    touched_.push_back(d);
    if (!spare_.empty()) {
      row = std::move(spare_.back());
      spare_.pop_back();
    }
    row.assign(routing_.core_.size(), {});
  }
  ArcLoad& place = row[static_cast<std::size_t>(core)];
  place.bytes += traffic.bytes;
  place.flows += traffic.flows;
  place.shares += traffic.flows;
}

void ArcLoads::add(Rank from, Rank to, double bytes) {
  if (taken_) std::fill(loads_.begin(), loads_.end(), ArcLoad{});
  taken_ = false;
  const Routing::Place& start = routing_.place(topology_.host(from));
  const Routing::Place& end = routing_.place(topology_.host(to));
  if (start.up.valid()) add_to_arc(start.up, bytes, 1);
  if (end.down.valid()) add_to_arc(end.down, bytes, 1);
  if (start.core != end.core) add_to_core(end.destination, start.core, {bytes, 1});
}

void ArcLoads::add_exchange(std::span<const HostWeight> from, std::span<const HostWeight> to) {
  if (taken_) std::fill(loads_.begin(), loads_.end(), ArcLoad{});
  taken_ = false;
  Traffic sent;      // weights and hosts
  Traffic received;  // weights and hosts
  std::vector<Traffic> sent_at(routing_.core_.size());
  std::vector<Traffic> received_at(routing_.destinations_.size());
  std::vector<double> own(static_cast<std::size_t>(topology_.host_count()), -1);
  for (const HostWeight& host : from) {
    sent.bytes += host.value;
    sent.flows += 1;
    own[host.rank.index()] = host.value;
    Traffic& at = sent_at[static_cast<std::size_t>(routing_.place(topology_.host(host.rank)).core)];
    at.bytes += host.value;
    at.flows += 1;
  }
  // A host that is on both sides sends nothing to itself.
  std::vector<double> taken(static_cast<std::size_t>(topology_.host_count()), -1);
  std::vector<std::int32_t> core_of(routing_.destinations_.size(), -1);
  for (const HostWeight& host : to) {
    const Routing::Place& place = routing_.place(topology_.host(host.rank));
    taken[host.rank.index()] = host.value;
    received.bytes += host.value;
    received.flows += 1;
    Traffic& at = received_at[static_cast<std::size_t>(place.destination)];
    at.bytes += host.value;
    at.flows += 1;
    core_of[static_cast<std::size_t>(place.destination)] = place.core;
    const double self = own[host.rank.index()];
    if (place.down.valid()) {
      add_to_arc(place.down, host.value * (sent.bytes - std::max(self, 0.0)),
                 sent.flows - (self >= 0 ? 1 : 0));
    }
  }
  for (const HostWeight& host : from) {
    const Routing::Place& place = routing_.place(topology_.host(host.rank));
    const double self = taken[host.rank.index()];
    if (place.up.valid()) {
      add_to_arc(place.up, host.value * (received.bytes - std::max(self, 0.0)),
                 received.flows - (self >= 0 ? 1 : 0));
    }
  }
  for (std::size_t d = 0; d < received_at.size(); ++d) {
    if (received_at[d].flows == 0) continue;
    for (std::size_t c = 0; c < sent_at.size(); ++c) {
      if (sent_at[c].flows == 0 || static_cast<std::int32_t>(c) == core_of[d]) continue;
      add_to_core(
          static_cast<std::int32_t>(d), static_cast<std::int32_t>(c),
          {sent_at[c].bytes * received_at[d].bytes, sent_at[c].flows * received_at[d].flows});
    }
  }
}

std::span<const ArcLoad> ArcLoads::take() {
  if (taken_) std::fill(loads_.begin(), loads_.end(), ArcLoad{});
  for (const std::size_t destination : touched_) spread(destination);
  touched_.clear();
  taken_ = true;
  return loads_;
}

// Each hop leads one step nearer, so the farthest nodes pass on their traffic first.
void ArcLoads::spread(std::size_t d) {
  const Routing::Destination& destination = routing_.destinations_[d];
  std::vector<std::int32_t>& order = orders_[d];
  if (order.empty()) {
    order.resize(routing_.core_.size());
    std::iota(order.begin(), order.end(), 0);
    const auto distance = [&](std::int32_t core) {
      return destination.distances[static_cast<std::size_t>(core)];
    };
    std::erase_if(order, [&](std::int32_t core) {
      return distance(core) == Routing::kUnreachable || distance(core) == 0;
    });
    std::ranges::stable_sort(order, std::greater<>{}, distance);
  }
  std::vector<ArcLoad>& row = waiting_[d];
  double all = 0;
  for (const ArcLoad& load : row) all += load.flows;
  for (const std::int32_t core : order) {
    const ArcLoad here = row[static_cast<std::size_t>(core)];
    if (here.flows == 0) continue;
    const auto hops = routing_.hops_of(destination, core);
    const double part = 1.0 / static_cast<double>(hops.size());
    for (const ArcId arc : hops) {
      const auto pass_on = [&](ArcLoad& load) {
        load.bytes += here.bytes * part;
        load.flows += here.flows;
        load.shares += here.shares * part;
      };
      pass_on(loads_[arc.index()]);
      ArcLoad& next = row[static_cast<std::size_t>(routing_.core_at_end_of(arc))];
      pass_on(next);
      // Paths that split and meet again carry the same flows.
      next.flows = std::min(next.flows, all);
    }
  }
  spare_.push_back(std::move(row));
  row.clear();
}

Duration ArcLoads::packet_time(Rank from, Rank to, Bytes packet) const {
  Duration time;
  NodeId node = topology_.host(from);
  const NodeId target = topology_.host(to);
  const Routing::Place& end = routing_.place(target);
  while (node != target) {
    const Routing::Place& here = routing_.place(node);
    ArcId arc;
    if (here.up.valid()) {
      arc = here.up;
    } else if (here.core == end.core) {
      arc = end.down;
    } else {
      arc =
          routing_
              .hops_of(routing_.destinations_[static_cast<std::size_t>(end.destination)], here.core)
              .front();
    }
    const Arc hop = topology_.arc(arc);
    if (node != topology_.host(from)) time = time + hop.spec.rate.transmission_time(packet);
    time = time + hop.spec.delay;
    node = hop.to;
  }
  return time;
}

}  // namespace thalweg::topology
