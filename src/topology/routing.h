// Shortest paths, all of them. Distance is hops; hosts do not forward. Where several next hops are
// equally near, traffic splits evenly over them at each node, as ECMP over many flows or
// per-packet spraying does.
#pragma once

#include <cstdint>
#include <vector>

#include "topology/topology.h"

namespace thalweg {

// The part of a flow that one arc carries.
struct ArcShare {
  ArcId arc;
  double fraction = 0;
};

class Routing {
 public:
  // The topology must outlive the routing.
  explicit Routing(const Topology& topology);

  // Hops from a node to a host.
  [[nodiscard]] int distance(NodeId from, Rank to) const;
  // The arcs out of `from` that lie on a shortest path to `to`, in the order of arcs_from().
  [[nodiscard]] std::vector<ArcId> next_hops(NodeId from, Rank to) const;
  // Every shortest path, at most `limit` of them, in the order of arcs_from().
  [[nodiscard]] std::vector<std::vector<ArcId>> paths(Rank from, Rank to, std::size_t limit) const;
  // The arcs a flow uses and how much of it each carries. Empty if from == to.
  [[nodiscard]] std::vector<ArcShare> shares(Rank from, Rank to) const;
  // Propagation delay of the slowest of the shortest paths.
  [[nodiscard]] Duration delay(Rank from, Rank to) const;

 private:
  const Topology& topology_;
  // distances_[rank * nodes + node]
  std::vector<std::uint16_t> distances_;
};

}  // namespace thalweg
