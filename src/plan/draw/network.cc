#include "plan/draw/network.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

namespace thalweg::plan {
namespace {

// Hops from the nearest host, per node.
std::vector<int> tiers_of(const topology::Topology& topology) {
  std::vector<int> tiers(topology.nodes().size(), -1);
  std::deque<topology::NodeId> queue;
  for (Rank rank{0}; rank.value() < topology.host_count(); ++rank) {
    tiers[topology.host(rank).index()] = 0;
    queue.push_back(topology.host(rank));
  }
  while (!queue.empty()) {
    const topology::NodeId node = queue.front();
    queue.pop_front();
    for (const topology::ArcId arc : topology.arcs_from(node)) {
      const topology::NodeId next = topology.arc(arc).to;
      if (tiers[next.index()] >= 0) continue;
      tiers[next.index()] = tiers[node.index()] + 1;
      queue.push_back(next);
    }
  }
  return tiers;
}

// Builds the boxes. In a summary, the switches of one tier within one column's region, or directly
// in an outer region, become one box.
class BoxBuilder {
 public:
  BoxBuilder(const topology::Topology& topology, const DrawColumns& columns)
      : topology_(topology), columns_(columns), tiers_(tiers_of(topology)) {}

  // Returns the box of each node; −1 for a switch that no host reaches.
  std::vector<int> build(DrawNetwork& network) {
    std::vector<int> box_of(topology_.nodes().size(), -1);
    for (std::size_t n = 0; n < box_of.size(); ++n) {
      if (tiers_[n] < 0) continue;
      const topology::NodeId id(static_cast<std::int32_t>(n));
      const topology::Node& node = topology_.node(id);
      const int column = node.kind == topology::NodeKind::kHost
                             ? columns_.column_of[topology_.rank_of(id).index()]
                             : -1;
      const topology::RegionId region = shown_region(node.region);
      const int alone = column < 0 && !columns_.summarised ? static_cast<int>(n) : -1;
      const auto [at, fresh] = index_.try_emplace({column, region, tiers_[n], alone},
                                                  static_cast<int>(network.boxes.size()));
      if (fresh) {
        network.boxes.push_back({.label = node.name,
                                 .tooltip = node.name,
                                 .tier = tiers_[n],
                                 .column = column,
                                 .region = region});
      }
      box_of[n] = at->second;
      ++network.boxes[static_cast<std::size_t>(at->second)].nodes;
      network.tiers = std::max(network.tiers, tiers_[n] + 1);
    }
    for (DrawBox& box : network.boxes) name_box(box);
    return box_of;
  }

 private:
  // The region of the column that contains `region`, if there is one; else `region` itself.
  [[nodiscard]] topology::RegionId shown_region(topology::RegionId region) const {
    if (!columns_.summarised) return region;
    for (const DrawColumn& column : columns_.columns) {
      if (column.region != topology::kWholeNetwork && topology_.contains(column.region, region)) {
        return column.region;
      }
    }
    return region;
  }

  void name_box(DrawBox& box) const {
    if (box.column >= 0) {
      const DrawColumn& column = columns_.columns[static_cast<std::size_t>(box.column)];
      box.label = column.label;
      box.tooltip = columns_.summarised ? column.name + ": " + column.label : column.name;
      return;
    }
    const std::string& region = topology_.region(box.region).name;
    if (box.nodes > 1) {
      box.label = fmt::format("{} switches", box.nodes);
      box.tooltip = fmt::format("{} switches{}{}", box.nodes, region.empty() ? "" : " of ", region);
    } else {
      box.label = name_within(topology_, box.label, box.region);
    }
  }

  const topology::Topology& topology_;
  const DrawColumns& columns_;
  std::vector<int> tiers_;
  std::map<std::tuple<int, topology::RegionId, int, int>, int> index_;
};

}  // namespace

DrawNetwork draw_network(const topology::Topology& topology, const Accounting& accounting,
                         const DrawColumns& columns) {
  DrawNetwork network;
  const std::vector<int> box_of = BoxBuilder(topology, columns).build(network);
  const double slowest = accounting.slowest_arc_time.s();
  std::map<std::pair<int, int>, std::size_t> edge_at;
  for (std::size_t l = 0; l < topology.links().size(); ++l) {
    const topology::Link& link = topology.links()[l];
    int a = box_of[link.a.index()];
    int b = box_of[link.b.index()];
    if (a == b || a < 0 || b < 0) continue;
    const auto height = [&](int box) {
      return std::pair(network.boxes[static_cast<std::size_t>(box)].tier, box);
    };
    const bool turned = height(a) > height(b);
    if (turned) std::swap(a, b);
    const auto [at, fresh] = edge_at.try_emplace({a, b}, network.edges.size());
    if (fresh) network.edges.push_back({.a = a, .b = b, .rate = link.spec.rate});
    DrawEdge& edge = network.edges[at->second];
    ++edge.links;
    edge.rate = std::min(edge.rate, link.spec.rate);
    for (std::size_t direction : {0U, 1U}) {
      const double bytes = accounting.arc_bytes[2 * l + direction];
      const double seconds = bytes / link.spec.rate.bytes_per_second();
      const std::size_t side = turned ? 1 - direction : direction;
      edge.bytes[side] = std::max(edge.bytes[side], bytes);
      edge.load[side] = std::max(edge.load[side], slowest > 0 ? seconds / slowest : 0);
    }
  }
  return network;
}

}  // namespace thalweg::plan
