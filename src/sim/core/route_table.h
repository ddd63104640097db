// Next hops, laid out for the hot path: one lookup by node and target host.
//
// Hosts with one link, to a switch, share the routes of that switch (see topology/routing.h); the
// table has a row for each other node and a column for each node where traffic ends. Distance is
// counted in hops over the links that are up; hosts do not forward. When links change, rebuild()
// computes all routes anew, as if routing had converged at once everywhere.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "topology/topology.h"

namespace thalweg::sim {

class RouteTable {
 public:
  // Starts with all links up. The topology must outlive the table.
  explicit RouteTable(const topology::Topology& topology);

  // `link_up` is indexed by link.
  void rebuild(const std::vector<bool>& link_up);

  // The arcs by which `node` may pass on a packet for `target`; empty if there is no path. For a
  // host with one link it is always that link.
  [[nodiscard]] std::span<const std::uint32_t> hops(std::uint32_t node,
                                                    std::uint32_t target) const {
    const End& end = ends_[target];
    if (node == end.node) return {&end.arc, end.arc == kNone ? std::size_t{0} : std::size_t{1}};
    const Row& row = rows_[node];
    if (row.only_arc != kNone) return {&row.only_arc, 1};
    const Cell& cell = cells_[std::size_t{row.index} * columns_.size() + end.column];
    return {hops_.data() + cell.first, cell.count};
  }
  // The node where traffic for `target` ends, as seen from the rest of the network.
  [[nodiscard]] std::uint32_t end_node(std::uint32_t target) const { return ends_[target].node; }

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;

  struct End {
    std::uint32_t node = kNone;  // the switch of a host with one link, else the host itself
    std::uint32_t arc = kNone;   // from that switch to the host
    std::uint32_t column = 0;
  };
  struct Row {
    std::uint32_t index = 0;
    std::uint32_t only_arc = kNone;  // only for a host with one link to a switch
  };
  struct Cell {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
  };

  void find_ends();
  void fill_column(std::uint32_t column, const std::vector<bool>& link_up);

  const topology::Topology& topology_;
  std::vector<End> ends_;  // by rank
  std::vector<Row> rows_;  // by node
  std::uint32_t row_count_ = 0;
  std::vector<std::uint32_t> columns_;  // the node of each column
  std::vector<Cell> cells_;
  std::vector<std::uint32_t> hops_;
};

}  // namespace thalweg::sim
