// ArcLoads: how many bytes and flows each arc carries, for one flow after another or for whole
// exchanges at once. An exchange of n hosts has n² flows; it is added in O(n) and spread over the
// core of the network (routing.h) once, so that 4,096 hosts take milliseconds.
//
// For example, a ring is n calls of add(), and an all-to-all one call of add_exchange().
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "topology/routing.h"

namespace thalweg::topology {

struct ArcLoad {
  double bytes = 0;
  double flows = 0;   // how many flows may use the arc
  double shares = 0;  // the sum of the fractions of these flows that use it
};

struct HostWeight {
  Rank rank;
  double value = 0;
};

class ArcLoads {
 public:
  // The topology and the routing must outlive this object.
  ArcLoads(const Topology& topology, const Routing& routing);

  // Adds one flow. Requires from != to.
  void add(Rank from, Rank to, double bytes);
  // Every host of `from` sends to every other host of `to` the product of the two weights.
  void add_exchange(std::span<const HostWeight> from, std::span<const HostWeight> to);
  // The loads of all that was added since the last call, by arc. Valid until the next call.
  std::span<const ArcLoad> take();

  // How long a packet of this size is under way once its host has sent it: each switch receives it
  // whole before it sends it on, and each link adds its delay. One of the shortest paths is taken.
  [[nodiscard]] Duration packet_time(Rank from, Rank to, Bytes packet) const;

 private:
  struct Traffic {
    double bytes = 0;
    double flows = 0;
  };

  void add_to_arc(ArcId arc, double bytes, double flows);
  void add_to_core(std::int32_t destination, std::int32_t core, Traffic traffic);
  void spread(std::size_t destination);

  const Topology& topology_;
  const Routing& routing_;
  std::vector<ArcLoad> loads_;                 // [arc]
  std::vector<std::vector<ArcLoad>> waiting_;  // [destination][core node]; empty: none
  std::vector<std::size_t> touched_;           // destinations with traffic
  // [destination]: the core nodes, the farthest first.
  std::vector<std::vector<std::int32_t>> orders_;
  std::vector<std::vector<ArcLoad>> spare_;  // rows for waiting_
  bool taken_ = false;                       // loads_ were handed out and are outdated
};

}  // namespace thalweg::topology
