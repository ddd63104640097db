// All shortest paths. Distance is counted in hops; hosts do not forward. Where several next hops
// are equally near, traffic splits evenly over them at each node, as with ECMP over many flows or
// per-packet spraying.
//
// How it is stored. A host with one link, to a switch, adds nothing to the question of paths: all
// its traffic passes that switch. Such hosts are leaves; the core is the rest of the network. For
// every core node at which traffic ends (a switch with leaves, or a core host), one breadth-first
// search gives a Destination: the distance of every core node from it, and the arcs by which
// traffic for it leaves that core node. For example, a network of 1,024 hosts in 32 racks has 32
// destinations over some 40 core nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "topology/topology.h"

namespace thalweg::topology {

// The fraction of a flow that one arc carries.
struct ArcShare {
  ArcId arc;
  double fraction = 0;
};

// Immutable after construction; any number of threads may call it at once.
class Routing {
 public:
  // The topology must outlive the routing.
  explicit Routing(const Topology& topology);

  // Hops from a node to a host; -1 from a switch that has no path to it.
  [[nodiscard]] int distance(NodeId from, Rank to) const;
  // The arcs out of `from` that lie on a shortest path to `to`, in the order of arcs_from().
  [[nodiscard]] std::vector<ArcId> next_hops(NodeId from, Rank to) const;
  // All shortest paths, but at most `limit`, in the order of arcs_from().
  [[nodiscard]] std::vector<std::vector<ArcId>> paths(Rank from, Rank to, std::size_t limit) const;
  // The arcs that a flow uses and the fraction that each carries; those nearest the source come
  // first, and each arc comes once. Empty if from == to.
  [[nodiscard]] std::vector<ArcShare> shares(Rank from, Rank to) const;
  // The propagation delay of the slowest of the shortest paths.
  [[nodiscard]] Duration delay(Rank from, Rank to) const;

 private:
  friend class ArcLoads;
  static constexpr std::uint16_t kUnreachable = 0xffff;

  // Where a node is: core nodes stand for themselves; leaves are attached to `core` by the arc
  // `up`.
  struct Place {
    std::int32_t core = -1;
    std::int32_t destination = -1;  // index of the destination of traffic to this node; -1: none
    ArcId up;                       // leaves only
    ArcId down;                     // leaves only
  };

  struct Destination {
    std::vector<std::uint16_t> distances;  // by core node
    // hops[first_hop[c] … first_hop[c+1]) are the arcs by which traffic leaves core node c.
    std::vector<std::uint32_t> first_hop;
    std::vector<ArcId> hops;
  };

  void find_places();
  [[nodiscard]] Destination search(std::int32_t core) const;
  [[nodiscard]] std::span<const ArcId> hops_of(const Destination& destination,
                                               std::int32_t core) const;
  [[nodiscard]] const Place& place(NodeId node) const { return places_[node.index()]; }
  [[nodiscard]] std::int32_t core_at_end_of(ArcId arc) const { return arc_targets_[arc.index()]; }

  const Topology& topology_;
  std::vector<Place> places_;              // by node
  std::vector<NodeId> core_;               // the core nodes
  std::vector<std::int32_t> arc_targets_;  // by arc: the core node it leads to
  std::vector<Destination> destinations_;
};

}  // namespace thalweg::topology
