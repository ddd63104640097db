#include "topology/aggregation_groups.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

namespace thalweg::topology {
namespace {

AggregationGroups::Site& site_of(AggregationGroups& groups, NodeId node) {
  const auto found = std::ranges::find(groups.sites, node, &AggregationGroups::Site::node);
  if (found != groups.sites.end()) return *found;
  groups.sites.push_back({.node = node, .groups = {}, .second_level = false});
  return groups.sites.back();
}

// The group that a worker behind this switch joins, if one of its groups has room.
std::optional<std::size_t> open_group(const AggregationGroups& groups,
                                      const AggregationGroups::Site& site, std::size_t most) {
  for (const std::size_t group : site.groups) {
    if (groups.members[group] < most) return group;
  }
  return std::nullopt;
}

}  // namespace

Result<NodeId> edge_switch_of(const Topology& topology, Rank host) {
  const NodeId node = topology.host(host);
  const auto arcs = topology.arcs_from(node);
  if (arcs.size() == 1) {
    const NodeId other = topology.arc(arcs[0]).to;
    if (!topology.rank_of(other).valid()) return other;
  }
  return Error(
      fmt::format("host '{}' has {} links: to take part in aggregation it must have one, to "
                  "a switch",
                  topology.node(node).name, arcs.size()));
}

Result<AggregationGroups> aggregation_groups(const Topology& topology,
                                             const std::vector<Rank>& workers,
                                             const std::vector<Rank>& servers,
                                             const std::function<bool(NodeId)>& aggregates,
                                             const AggregationLimits& limits) {
  if (workers.empty()) return Error("aggregation needs at least one worker");
  AggregationGroups result;
  for (const Rank worker : workers) {
    THALWEG_TRY(const NodeId node, edge_switch_of(topology, worker));
    const bool here = aggregates(node);
    std::optional<std::size_t> group;
    if (here) group = open_group(result, site_of(result, node), limits.workers);
    if (!group) {
      group = result.members.size();
      result.members.push_back(0);
      if (here) site_of(result, node).groups.push_back(*group);
    }
    result.workers.push_back(
        {.group = *group, .index = result.members[*group]++, .first_level = here});
  }
  if (result.members.size() > limits.groups) {
    return Error(
        fmt::format("{} workers make {} groups (racks, and workers behind switches that do "
                    "not aggregate): at most {} are allowed",
                    workers.size(), result.members.size(), limits.groups));
  }
  for (const Rank server : servers) {
    THALWEG_TRY(const NodeId node, edge_switch_of(topology, server));
    if (aggregates(node) && result.members.size() > 1) site_of(result, node).second_level = true;
  }
  return result;
}

}  // namespace thalweg::topology
