// How fast a flow could possibly be: its packets are sent back to back into an empty network, and
// each switch passes a packet on as soon as it has all of it.
//
// The shortest paths are stages, one per hop. With one arc per stage, n−1 full packets and a last
// packet with the rest, the last full packet leaves stage i at
//     D_i = Σ_{j≤i} (a_j + delay_j) + (n−2)·max_{j≤i} a_j
// where a_j is the time of a full packet on stage j. The last packet, which takes b_j on stage j,
// leaves stage i at L_i = max(L_{i−1}, D_i) + b_i (+ delay_i). These times are exact.
//
// Where a stage has several arcs and packets may spread over them, k packets cross side by side, so
// the stage holds n−1 packets back by no more than (n−1−k)·s, where s is a full packet's time at
// the rate of all arcs together. Behind such a stage the last packet need not be last any more, so
// it waits for no other. Where arcs of a stage differ, the fastest and nearest counts. Then the
// result is a lower bound rather than exact.
//
// A flow that mixes packet sizes can fill the pipeline faster than full packets do; for it the
// bound takes all its bytes on the slowest stage and one smallest packet on the others.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "sim/core/route_table.h"
#include "topology/topology.h"

namespace thalweg::sim {

struct FlowShape {
  std::uint64_t bytes = 0;           // payload
  std::uint32_t segment = 0;         // the largest payload of a packet
  std::uint32_t smallest = 0;        // the smallest payload of a packet
  bool uniform = true;               // every packet but the flow's last is full
  std::uint32_t overhead_bytes = 0;  // headers and framing of a packet
};

class Oracle {
 public:
  // `spread`: packets of a flow may take different paths.
  Oracle(const topology::Topology& topology, bool spread);

  // From now on packets of a flow may take different paths, because routes change.
  void allow_spread();
  // From now on the link may have this rate, if it is higher than what the link had so far.
  void raise_rate(topology::LinkId link, Bandwidth rate);
  // Requires shape.bytes > 0 and shape.segment > 0.
  [[nodiscard]] Duration completion_time(Rank from, Rank to, const FlowShape& shape);
  // The sum of the delays of the links on the way: no bit is faster.
  [[nodiscard]] Duration propagation_time(Rank from, Rank to);

 private:
  struct Stage {
    Bandwidth rate;         // the rate of the fastest arc
    Bandwidth together;     // the rate of all arcs if packets may spread, else of the fastest
    std::int64_t arcs = 0;  // number of arcs that packets may spread over
    std::int64_t delay_ps = 0;
  };
  using Stages = std::vector<Stage>;

  [[nodiscard]] Stage stage_of(const std::vector<std::uint32_t>& arcs) const;
  // The stages from a node to the node where traffic for `to` ends.
  const Stages& core_stages(std::uint32_t node, Rank to);
  // Leaves the stages from host to host in scratch_.
  void find_stages(Rank from, Rank to);
  [[nodiscard]] static Duration pipeline(const Stages& stages, const FlowShape& shape);
  [[nodiscard]] static Duration loose_bound(const Stages& stages, const FlowShape& shape);

  const topology::Topology& topology_;
  RouteTable routes_;
  bool spread_;
  std::vector<Bandwidth> rates_;  // by link: the highest rate it ever had
  std::map<std::pair<std::uint32_t, std::uint32_t>, Stages> cache_;
  Stages scratch_;
};

}  // namespace thalweg::sim
