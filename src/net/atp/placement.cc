#include "net/atp/placement.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "net/io/small_file.h"
#include "topology/aggregation_groups.h"
#include "topology/format/load.h"
#include "topology/routing.h"

namespace thalweg::net {
namespace {

using topology::AggregationGroups;
using topology::NodeId;
using topology::Topology;

Result<Topology> read_topology(const std::string& text) {
  if (text.find('\n') != std::string::npos) {
    return topology::topology_from_yaml(text, "the topology");
  }
  if (topology::is_topology_shorthand(text)) return topology::topology_from_shorthand(text);
  THALWEG_TRY(const std::string content, read_small_file(text, "the topology", kMaxListFile));
  return topology::topology_from_file_text(content, text);
}

Result<Rank> host_named(const std::string& text, const Topology& topology) {
  if (const NodeId node = topology.find_node(text); node.valid()) {
    if (const Rank rank = topology.rank_of(node); rank.valid()) return rank;
  }
  std::int32_t number = -1;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || end != text.data() + text.size() || number < 0 ||
      number >= topology.host_count()) {
    return Error(
        fmt::format("'{}' is no host of the topology, neither by name nor by number from "
                    "0 to {}",
                    text, topology.host_count() - 1));
  }
  return Rank(number);
}

// Seconds for each byte of the tensor, if all servers are at this switch: the slower of its uplinks
// and its hosts' links.
double cost_at(const Topology& topology, NodeId node, std::size_t other_groups,
               std::size_t servers) {
  double uplinks = 0;
  double host = 0;
  for (const topology::ArcId id : topology.arcs_from(node)) {
    const topology::Arc arc = topology.arc(id);
    const double rate = arc.spec.rate.bytes_per_second();
    if (!topology.rank_of(arc.to).valid()) {
      uplinks += rate;
    } else if (host == 0 || rate < host) {
      host = rate;
    }
  }
  const double by_uplinks = uplinks == 0 ? 0 : static_cast<double>(other_groups) / uplinks;
  const double by_host = host == 0 ? 0 : (1 + 1 / static_cast<double>(servers)) / host;
  return std::max(by_uplinks, by_host);
}

// The switches that aggregate, and the ranks behind each.
struct Racks {
  std::vector<NodeId> edges;        // [rank]: its edge switch
  std::vector<NodeId> aggregating;  // with two ranks or more behind them
  [[nodiscard]] std::size_t ranks_at(NodeId node) const {
    return static_cast<std::size_t>(std::ranges::count(edges, node));
  }
  [[nodiscard]] bool aggregates(NodeId node) const {
    return std::ranges::find(aggregating, node) != aggregating.end();
  }
};

Result<Racks> racks_of(const AtpNetwork& network, const std::vector<NodeId>& nodes,
                       const std::vector<bool>& present) {
  Racks racks;
  for (const Rank host : network.hosts) {
    THALWEG_TRY(const NodeId edge, topology::edge_switch_of(network.topology, host));
    racks.edges.push_back(edge);
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (present[i] && racks.ranks_at(nodes[i]) > 1) racks.aggregating.push_back(nodes[i]);
  }
  return racks;
}

// The aggregating switch where the servers cost least; the first of equals.
NodeId cheapest(const Racks& racks, const Topology& topology) {
  std::size_t groups = racks.aggregating.size();
  groups += static_cast<std::size_t>(
      std::ranges::count_if(racks.edges, [&](NodeId edge) { return !racks.aggregates(edge); }));
  return *std::ranges::min_element(racks.aggregating, {}, [&](NodeId node) {
    return cost_at(topology, node, groups - 1, racks.ranks_at(node));
  });
}

// The ranks of the servers' rack, then those of the other racks, then those behind switches that do
// not aggregate.
std::vector<int> ordered(const Racks& racks, NodeId top) {
  std::vector<int> order(racks.edges.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int rank) {
    const NodeId edge = racks.edges[static_cast<std::size_t>(rank)];
    if (edge == top) return std::ptrdiff_t{-1};
    return std::ranges::find(racks.aggregating, edge) - racks.aggregating.begin();
  });
  return order;
}

AtpPlacement one_level(std::vector<int> order, std::size_t at, std::size_t servers) {
  const auto ranks = static_cast<std::uint8_t>(order.size());
  return {.order = std::move(order),
          .groups = {ranks},
          .switches = {at},
          .top = at,
          .most_servers = static_cast<int>(servers),
          .several_paths = false};
}

// Whether several shortest paths lead from one of the workers to the first of them.
bool several_paths(const Topology& topology, const std::vector<Rank>& workers) {
  const topology::Routing routing(topology);
  return std::ranges::any_of(workers, [&](Rank worker) {
    return worker != workers.front() && routing.paths(worker, workers.front(), 2).size() > 1;
  });
}

}  // namespace

Result<AtpNetwork> atp_network(const std::string& topology, const std::vector<std::string>& hosts) {
  Result<Topology> read = read_topology(topology);
  if (!read.ok()) return read.error().within("topology");
  AtpNetwork network{.topology = std::move(*read), .hosts = {}};
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    const Result<Rank> host = host_named(hosts[r], network.topology);
    if (!host.ok()) return host.error().within(fmt::format("the host of rank {}", r));
    network.hosts.push_back(*host);
  }
  return network;
}

Result<std::vector<NodeId>> nodes_of(const std::vector<ListedSwitch>& list,
                                     const Topology& topology) {
  std::vector<NodeId> nodes;
  for (const ListedSwitch& entry : list) {
    const NodeId node = topology.find_node(entry.name);
    if (!node.valid() || topology.rank_of(node).valid()) {
      return Error(
          fmt::format("the switch {}: the topology has no switch '{}'", entry.text(), entry.name));
    }
    nodes.push_back(node);
  }
  return nodes;
}

Result<AtpPlacement> place_atp_job(const AtpNetwork* network, int ranks,
                                   const std::vector<NodeId>& nodes,
                                   const std::vector<bool>& present) {
  const auto first = static_cast<std::size_t>(std::ranges::find(present, true) - present.begin());
  CHECK(first < present.size());
  std::vector<int> same(static_cast<std::size_t>(ranks));
  std::iota(same.begin(), same.end(), 0);
  const auto all = static_cast<std::size_t>(ranks);
  if (network == nullptr) return one_level(std::move(same), first, all);
  THALWEG_TRY(const Racks racks, racks_of(*network, nodes, present));
  const auto listed = [&](NodeId node) {
    return static_cast<std::size_t>(std::ranges::find(nodes, node) - nodes.begin());
  };
  if (racks.aggregating.empty()) return one_level(std::move(same), first, all);
  const NodeId top = cheapest(racks, network->topology);
  std::vector<int> order = ordered(racks, top);
  if (racks.aggregating.size() == 1) {
    return one_level(std::move(order), listed(top), racks.ranks_at(top));
  }
  std::vector<Rank> workers;
  for (const int rank : order) workers.push_back(network->hosts[static_cast<std::size_t>(rank)]);
  THALWEG_TRY(const AggregationGroups groups,
              topology::aggregation_groups(network->topology, workers, {workers.front()},
                                           [&](NodeId node) { return racks.aggregates(node); }));
  AtpPlacement placement{.order = std::move(order),
                         .groups = {},
                         .switches = std::vector<std::size_t>(groups.members.size(), listed(top)),
                         .top = listed(top),
                         .most_servers = static_cast<int>(racks.ranks_at(top)),
                         .several_paths = several_paths(network->topology, workers)};
  for (const std::size_t members : groups.members) {
    placement.groups.push_back(static_cast<std::uint8_t>(members));
  }
  for (const AggregationGroups::Site& site : groups.sites) {
    for (const std::size_t group : site.groups) placement.switches[group] = listed(site.node);
  }
  return placement;
}

}  // namespace thalweg::net
