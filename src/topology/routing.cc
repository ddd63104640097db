#include "topology/routing.h"

#include <algorithm>

#include "base/check.h"

namespace thalweg::topology {

Routing::Routing(const Topology& topology) : topology_(topology), places_(topology.nodes().size()) {
  find_places();
  std::vector<std::int32_t> destination_of(core_.size(), -1);
  for (int r = 0; r < topology.host_count(); ++r) {
    Place& host = places_[topology.host(Rank(r)).index()];
    std::int32_t& destination = destination_of[static_cast<std::size_t>(host.core)];
    if (destination < 0) {
      destination = static_cast<std::int32_t>(destinations_.size());
      destinations_.push_back(search(host.core));
    }
    host.destination = destination;
  }
}

void Routing::find_places() {
  const Topology& t = topology_;
  const auto leaf_arc = [&](NodeId id) {
    const std::span<const ArcId> arcs = t.arcs_from(id);
    const bool leaf =
        t.rank_of(id).valid() && arcs.size() == 1 && !t.rank_of(t.arc(arcs[0]).to).valid();
    return leaf ? arcs[0] : ArcId{};
  };
  for (std::size_t n = 0; n < places_.size(); ++n) {
    const NodeId id(static_cast<std::int32_t>(n));
    places_[n].up = leaf_arc(id);
    if (places_[n].up.valid()) continue;
    places_[n].core = static_cast<std::int32_t>(core_.size());
    core_.push_back(id);
  }
  for (Place& leaf : places_) {
    if (!leaf.up.valid()) continue;
    leaf.core = place(t.arc(leaf.up).to).core;
    leaf.down = ArcId(leaf.up.value() ^ 1);
  }
  arc_targets_.resize(t.arc_count());
  for (std::size_t a = 0; a < arc_targets_.size(); ++a) {
    arc_targets_[a] = place(t.arc(ArcId(static_cast<std::int32_t>(a))).to).core;
  }
}

// Searches breadth first, backwards from the destination: the two arcs of a link differ only in the
// lowest bit of their id.
Routing::Destination Routing::search(std::int32_t core) const {
  Destination result;
  result.distances.assign(core_.size(), kUnreachable);
  result.distances[static_cast<std::size_t>(core)] = 0;
  std::vector<std::int32_t> queue{core};
  for (std::size_t next = 0; next < queue.size(); ++next) {
    const std::int32_t here = queue[next];
    const NodeId node = core_[static_cast<std::size_t>(here)];
    if (here != core && topology_.rank_of(node).valid()) continue;  // hosts do not forward
    const int further = result.distances[static_cast<std::size_t>(here)] + 1;
    CHECK(further < kUnreachable);
    for (const ArcId arc : topology_.arcs_from(node)) {
      const std::int32_t neighbour = core_at_end_of(arc);
      std::uint16_t& distance = result.distances[static_cast<std::size_t>(neighbour)];
      if (distance != kUnreachable) continue;
      distance = static_cast<std::uint16_t>(further);
      queue.push_back(neighbour);
    }
  }

  result.first_hop.reserve(core_.size() + 1);
  for (std::size_t c = 0; c < core_.size(); ++c) {
    result.first_hop.push_back(static_cast<std::uint32_t>(result.hops.size()));
    const int distance = result.distances[c];
    if (distance == kUnreachable) continue;
    for (const ArcId arc : topology_.arcs_from(core_[c])) {
      const std::int32_t to = core_at_end_of(arc);
      const bool forwards =
          to == core || !topology_.rank_of(core_[static_cast<std::size_t>(to)]).valid();
      if (forwards && result.distances[static_cast<std::size_t>(to)] + 1 == distance) {
        result.hops.push_back(arc);
      }
    }
  }
  result.first_hop.push_back(static_cast<std::uint32_t>(result.hops.size()));
  return result;
}

std::span<const ArcId> Routing::hops_of(const Destination& destination, std::int32_t core) const {
  const auto c = static_cast<std::size_t>(core);
  return std::span(destination.hops)
      .subspan(destination.first_hop[c], destination.first_hop[c + 1] - destination.first_hop[c]);
}

int Routing::distance(NodeId from, Rank to) const {
  const NodeId target = topology_.host(to);
  if (from == target) return 0;
  const Place& start = place(from);
  const Place& end = place(target);
  const auto& distances = destinations_[static_cast<std::size_t>(end.destination)].distances;
  const int between = distances[static_cast<std::size_t>(start.core)];
  if (between == kUnreachable) return -1;
  return (start.up.valid() ? 1 : 0) + between + (end.down.valid() ? 1 : 0);
}

std::vector<ArcId> Routing::next_hops(NodeId from, Rank to) const {
  const NodeId target = topology_.host(to);
  if (from == target) return {};
  const Place& start = place(from);
  const Place& end = place(target);
  if (start.up.valid()) return {start.up};
  if (start.core == end.core) return {end.down};
  const auto hops = hops_of(destinations_[static_cast<std::size_t>(end.destination)], start.core);
  return {hops.begin(), hops.end()};
}

// Searches depth first; choices[i] are the arcs still to be tried as hop i.
std::vector<std::vector<ArcId>> Routing::paths(Rank from, Rank to, std::size_t limit) const {
  std::vector<std::vector<ArcId>> found;
  if (from == to) return found;
  const NodeId target = topology_.host(to);
  std::vector<ArcId> path;
  std::vector<std::vector<ArcId>> choices{next_hops(topology_.host(from), to)};
  std::reverse(choices.back().begin(), choices.back().end());
  while (!choices.empty() && found.size() < limit) {
    if (choices.back().empty()) {
      choices.pop_back();
      if (!path.empty()) path.pop_back();
      continue;
    }
    const ArcId arc = choices.back().back();
    choices.back().pop_back();
    path.push_back(arc);
    const NodeId reached = topology_.arc(arc).to;
    if (reached == target) {
      found.push_back(path);
      path.pop_back();
      continue;
    }
    choices.push_back(next_hops(reached, to));
    std::reverse(choices.back().begin(), choices.back().end());
  }
  return found;
}

// Every hop leads one step nearer, so the queue reaches a node only after all nodes that feed it.
std::vector<ArcShare> Routing::shares(Rank from, Rank to) const {
  std::vector<ArcShare> result;
  if (from == to) return result;
  const Place& start = place(topology_.host(from));
  const Place& end = place(topology_.host(to));
  const Destination& destination = destinations_[static_cast<std::size_t>(end.destination)];
  if (start.up.valid()) result.push_back({start.up, 1});
  constexpr double kNotReached = -1;
  std::vector<double> flow(core_.size(), kNotReached);
  std::vector<std::int32_t> queue{start.core};
  flow[static_cast<std::size_t>(start.core)] = 1;
  for (std::size_t next = 0; next < queue.size(); ++next) {
    const std::int32_t here = queue[next];
    const std::span<const ArcId> hops = hops_of(destination, here);
    const double part = flow[static_cast<std::size_t>(here)] / static_cast<double>(hops.size());
    for (const ArcId arc : hops) {
      result.push_back({arc, part});
      const std::int32_t reached = core_at_end_of(arc);
      double& arriving = flow[static_cast<std::size_t>(reached)];
      if (arriving == kNotReached) {
        arriving = 0;
        queue.push_back(reached);
      }
      arriving += part;
    }
  }
  if (end.down.valid()) result.push_back({end.down, 1});
  return result;
}

Duration Routing::delay(Rank from, Rank to) const {
  if (from == to) return {};
  const Place& start = place(topology_.host(from));
  const Place& end = place(topology_.host(to));
  const Destination& destination = destinations_[static_cast<std::size_t>(end.destination)];
  constexpr Duration kNotReached = Duration::picoseconds(-1);
  std::vector<Duration> slowest(core_.size(), kNotReached);
  std::vector<std::int32_t> queue{start.core};
  slowest[static_cast<std::size_t>(start.core)] =
      start.up.valid() ? topology_.arc(start.up).spec.delay : Duration();
  for (std::size_t next = 0; next < queue.size(); ++next) {
    const std::int32_t here = queue[next];
    for (const ArcId arc : hops_of(destination, here)) {
      const std::int32_t reached = core_at_end_of(arc);
      Duration& arrival = slowest[static_cast<std::size_t>(reached)];
      if (arrival == kNotReached) queue.push_back(reached);
      arrival = std::max(arrival,
                         slowest[static_cast<std::size_t>(here)] + topology_.arc(arc).spec.delay);
    }
  }
  const Duration last = end.down.valid() ? topology_.arc(end.down).spec.delay : Duration();
  return slowest[static_cast<std::size_t>(end.core)] + last;
}

}  // namespace thalweg::topology
