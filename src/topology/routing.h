// Shortest paths, all of them. Distance is hops; hosts do not forward. Where several next hops are
// equally near, traffic splits evenly over them at each node, as ECMP over many flows or
// per-packet spraying does.
//
// How it is stored. A host with one link, to a switch, adds nothing to the question of paths: all
// its traffic passes that switch. Such hosts are leaves; the core is the rest of the network. For
// every core node at which traffic ends (a switch with leaves, or a core host), one breadth-first
// search gives a Destination: how far every core node is from it, and by which arcs it is left.
// A network of 1,024 hosts in 32 racks thus has 32 destinations over some 40 core nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "topology/topology.h"

namespace thalweg {

// The part of a flow that one arc carries.
struct ArcShare {
  ArcId arc;
  double fraction = 0;
};

// Immutable after construction; any number of threads may ask at once.
class Routing {
 public:
  // The topology must outlive the routing.
  explicit Routing(const Topology& topology);

  // Hops from a node to a host; -1 from a switch that no path joins to it.
  [[nodiscard]] int distance(NodeId from, Rank to) const;
  // The arcs out of `from` that lie on a shortest path to `to`, in the order of arcs_from().
  [[nodiscard]] std::vector<ArcId> next_hops(NodeId from, Rank to) const;
  // Every shortest path, at most `limit` of them, in the order of arcs_from().
  [[nodiscard]] std::vector<std::vector<ArcId>> paths(Rank from, Rank to, std::size_t limit) const;
  // The arcs a flow uses and how much of it each carries, nearest the source first, each arc once.
  // Empty if from == to.
  [[nodiscard]] std::vector<ArcShare> shares(Rank from, Rank to) const;
  // Propagation delay of the slowest of the shortest paths.
  [[nodiscard]] Duration delay(Rank from, Rank to) const;

 private:
  static constexpr std::uint16_t kUnreachable = 0xffff;

  // Where a node stands: core nodes are themselves, leaves hang on `core` by `up`.
  struct Place {
    std::int32_t core = -1;
    std::int32_t destination = -1;  // of traffic to this node; -1 if there is none
    ArcId up;                       // leaves only
    ArcId down;                     // leaves only
  };

  struct Destination {
    std::vector<std::uint16_t> distances;  // by core node
    // hops[first_hop[c] … first_hop[c+1]): the arcs by which core node c is left.
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

}  // namespace thalweg
