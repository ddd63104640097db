#include "sim/core/route_table.h"

#include <algorithm>

namespace thalweg::sim {

RouteTable::RouteTable(const topology::Topology& topology)
    : topology_(topology),
      ends_(static_cast<std::size_t>(topology.host_count())),
      rows_(topology.nodes().size()) {
  find_ends();
  rebuild(std::vector<bool>(topology.links().size(), true));
}

void RouteTable::find_ends() {
  std::vector<std::uint32_t> column_of(rows_.size(), kNone);
  for (std::uint32_t n = 0; n < rows_.size(); ++n) {
    const topology::NodeId node(static_cast<std::int32_t>(n));
    const Rank rank = topology_.rank_of(node);
    const std::span<const topology::ArcId> arcs = topology_.arcs_from(node);
    const bool leaf =
        rank.valid() && arcs.size() == 1 && !topology_.rank_of(topology_.arc(arcs[0]).to).valid();
    End end{n, kNone, 0};
    if (leaf) {
      rows_[n].only_arc = static_cast<std::uint32_t>(arcs[0].value());
      end.node = static_cast<std::uint32_t>(topology_.arc(arcs[0]).to.value());
      end.arc = rows_[n].only_arc ^ 1;
    } else {
      rows_[n].index = row_count_++;
    }
    if (!rank.valid()) continue;
    if (column_of[end.node] == kNone) {
      column_of[end.node] = static_cast<std::uint32_t>(columns_.size());
      columns_.push_back(end.node);
    }
    end.column = column_of[end.node];
    ends_[rank.index()] = end;
  }
}

void RouteTable::rebuild(const std::vector<bool>& link_up) {
  cells_.assign(std::size_t{row_count_} * columns_.size(), Cell{});
  hops_.clear();
  for (std::uint32_t c = 0; c < columns_.size(); ++c) fill_column(c, link_up);
}

// Searches breadth first, backwards from the column's node; then each node keeps its arcs that lead
// one step nearer.
void RouteTable::fill_column(std::uint32_t column, const std::vector<bool>& link_up) {
  const auto up = [&](topology::ArcId arc) { return link_up[arc.index() / 2]; };
  const auto far_end = [&](topology::ArcId arc) {
    return static_cast<std::uint32_t>(topology_.arc(arc).to.value());
  };
  const auto is_host = [&](std::uint32_t node) {
    return topology_.rank_of(topology::NodeId(static_cast<std::int32_t>(node))).valid();
  };
  const auto arcs_of = [&](std::uint32_t node) {
    return topology_.arcs_from(topology::NodeId(static_cast<std::int32_t>(node)));
  };
  const std::uint32_t target = columns_[column];
  std::vector<std::uint32_t> distances(rows_.size(), kNone);
  distances[target] = 0;
  std::vector<std::uint32_t> reached{target};
  for (std::size_t next = 0; next < reached.size(); ++next) {
    const std::uint32_t here = reached[next];
    if (here != target && is_host(here)) continue;
    for (const topology::ArcId arc : arcs_of(here)) {
      const std::uint32_t neighbour = far_end(arc);
      if (!up(arc) || distances[neighbour] != kNone) continue;
      distances[neighbour] = distances[here] + 1;
      reached.push_back(neighbour);
    }
  }
  for (const std::uint32_t node : reached) {
    if (node == target || rows_[node].only_arc != kNone) continue;
    Cell cell{static_cast<std::uint32_t>(hops_.size()), 0};
    for (const topology::ArcId arc : arcs_of(node)) {
      const std::uint32_t next = far_end(arc);
      const bool forwards = next == target || !is_host(next);
      if (!up(arc) || !forwards || distances[next] + 1 != distances[node]) continue;
      hops_.push_back(static_cast<std::uint32_t>(arc.value()));
      ++cell.count;
    }
    cells_[std::size_t{rows_[node].index} * columns_.size() + column] = cell;
  }
}

}  // namespace thalweg::sim
