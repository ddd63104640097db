#include "net/atp/placement.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "net/atp/job_message.h"
#include "net/atp/member.h"
#include "net/io/small_file.h"
#include "topology/aggregation_groups.h"
#include "topology/format/load.h"
#include "topology/routing.h"

namespace thalweg::net {
namespace {

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

std::optional<std::int32_t> whole_number(std::string_view text) {
  std::int32_t number = -1;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || end != text.data() + text.size() || number < 0) return {};
  return number;
}

// The host of a rank, from "rank/ranks".
Result<Rank> host_in_order(std::int32_t rank, std::int32_t ranks, const Topology& topology) {
  const std::int32_t hosts = topology.host_count();
  if (ranks <= hosts && rank < hosts) return Rank(rank);
  if (hosts > 0 && ranks % hosts == 0 && rank < ranks) return Rank(rank / (ranks / hosts));
  return Error(fmt::format(
      "the topology has {} hosts for {} ranks, not as many ranks for each: THALWEG_HOST "
      "may say which host it is",
      hosts, ranks));
}

Result<Rank> host_named(const std::string& text, const Topology& topology) {
  if (const std::size_t slash = text.find('/'); slash != std::string::npos) {
    const auto rank = whole_number(std::string_view(text).substr(0, slash));
    const auto ranks = whole_number(std::string_view(text).substr(slash + 1));
    if (rank && ranks && *ranks > 0) return host_in_order(*rank, *ranks, topology);
  }
  if (const NodeId node = topology.find_node(text); node.valid()) {
    if (const Rank rank = topology.rank_of(node); rank.valid()) return rank;
  }
  const std::optional<std::int32_t> number = whole_number(text);
  if (!number || *number >= topology.host_count()) {
    return Error(
        fmt::format("'{}' is no host of the topology, neither by name nor by number from "
                    "0 to {}",
                    text, topology.host_count() - 1));
  }
  return Rank(*number);
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

// Where ranks are summed first.
struct Sites {
  std::vector<NodeId> edges;  // [rank]: its edge switch
  // [rank]: its host, if a switch there sums the host's ranks; otherwise its edge switch
  std::vector<NodeId> first;
  std::vector<NodeId> aggregating;  // with two ranks or more to sum
  std::vector<NodeId> tops;         // those that may be the servers' switch

  [[nodiscard]] std::size_t ranks_at(NodeId node) const {
    return static_cast<std::size_t>(std::ranges::count(first, node));
  }
  [[nodiscard]] bool aggregates(NodeId node) const {
    return std::ranges::find(aggregating, node) != aggregating.end();
  }
  [[nodiscard]] bool below(std::size_t rank, NodeId top) const {
    return first[rank] == top || edges[rank] == top;
  }
  [[nodiscard]] std::size_t ranks_below(NodeId top) const {
    std::size_t count = 0;
    for (std::size_t rank = 0; rank < edges.size(); ++rank) {
      if (below(rank, top)) ++count;
    }
    return count;
  }
};

Result<Sites> sites_of(const AtpNetwork& network, const std::vector<NodeId>& nodes,
                       const std::vector<bool>& present) {
  Sites sites;
  for (const Rank host : network.hosts) {
    THALWEG_TRY(const NodeId edge, topology::edge_switch_of(network.topology, host));
    sites.edges.push_back(edge);
    const NodeId node = network.topology.host(host);
    const auto at = static_cast<std::size_t>(std::ranges::find(nodes, node) - nodes.begin());
    const bool sums =
        at < nodes.size() && present[at] && std::ranges::count(network.hosts, host) > 1;
    sites.first.push_back(sums ? node : edge);
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (present[i] && sites.ranks_at(nodes[i]) > 1) sites.aggregating.push_back(nodes[i]);
  }
  // The sums of hosts meet at a switch of the network, if there is one.
  const auto is_host = [&](NodeId node) { return network.topology.rank_of(node).valid(); };
  if (std::ranges::any_of(sites.aggregating, is_host)) {
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const bool joins = present[i] && !is_host(nodes[i]) && sites.ranks_below(nodes[i]) > 1;
      if (joins) sites.tops.push_back(nodes[i]);
    }
  }
  if (sites.tops.empty()) sites.tops = sites.aggregating;
  return sites;
}

// The switch where the servers cost least; the first of equals.
NodeId cheapest(const Sites& sites, const Topology& topology) {
  std::size_t groups = sites.aggregating.size();
  groups += static_cast<std::size_t>(
      std::ranges::count_if(sites.first, [&](NodeId node) { return !sites.aggregates(node); }));
  return *std::ranges::min_element(sites.tops, {}, [&](NodeId node) {
    return cost_at(topology, node, groups - 1, sites.ranks_below(node));
  });
}

// The ranks below the servers' switch, then the others; of both, those that a switch sums first
// come before those behind switches that do not aggregate.
std::vector<int> ordered(const Sites& sites, NodeId top) {
  std::vector<int> order(sites.edges.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    const NodeId node = sites.first[at];
    const auto place = std::ranges::find(sites.aggregating, node) - sites.aggregating.begin();
    return std::tuple(!sites.below(at, top), node != top || !sites.aggregates(node), place);
  });
  return order;
}

int most_servers(std::size_t ranks) { return static_cast<int>(std::min(ranks, kMaxJobServers)); }

// All ranks at one switch.
AtpPlacement one_switch(std::vector<int> order, std::size_t at, std::size_t servers) {
  std::vector<std::uint8_t> groups = equal_atp_groups(order.size());
  return {.order = std::move(order),
          .groups = groups,
          .switches = std::vector<std::size_t>(groups.size(), at),
          .top = at,
          .most_servers = most_servers(servers),
          .several_paths = false};
}

// Divides the ranks, in their order, into groups: each has the ranks of one switch that sums them
// first. `most_strays`: the ranks of a group behind switches that do not aggregate; these send to
// the servers' switch. `listed`: the place of a switch in the list.
template <class Listed>
void divide(AtpPlacement& placement, const Sites& sites, std::size_t most_strays, Listed listed) {
  placement.groups.clear();
  placement.switches.clear();
  std::optional<NodeId> last;  // whose group the last one is; none: that of strays
  for (const int rank : placement.order) {
    const NodeId node = sites.first[static_cast<std::size_t>(rank)];
    const std::optional<NodeId> own = sites.aggregates(node) ? std::optional(node) : std::nullopt;
    const std::size_t most = own ? wire::kAtpMostWorkersPerGroup : most_strays;
    if (placement.groups.empty() || own != last || placement.groups.back() >= most) {
      placement.groups.push_back(0);
      placement.switches.push_back(own ? listed(*own) : placement.top);
    }
    ++placement.groups.back();
    last = own;
  }
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
    if (!node.valid()) {
      return Error(
          fmt::format("the switch {}: the topology has no switch '{}', nor a host of that "
                      "name, whose own switch it might be",
                      entry.text(), entry.name));
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
  if (network == nullptr) return one_switch(std::move(same), first, all);
  THALWEG_TRY(const Sites sites, sites_of(*network, nodes, present));
  const auto listed = [&](NodeId node) {
    return static_cast<std::size_t>(std::ranges::find(nodes, node) - nodes.begin());
  };
  if (sites.tops.empty()) return one_switch(std::move(same), first, all);
  const NodeId top = cheapest(sites, network->topology);
  std::vector<int> order = ordered(sites, top);
  if (std::ranges::all_of(sites.aggregating, [&](NodeId node) { return node == top; })) {
    return one_switch(std::move(order), listed(top), sites.ranks_below(top));
  }
  std::vector<Rank> workers;
  for (const int rank : order) workers.push_back(network->hosts[static_cast<std::size_t>(rank)]);
  AtpPlacement placement{.order = std::move(order),
                         .groups = {},
                         .switches = {},
                         .top = listed(top),
                         .most_servers = most_servers(sites.ranks_below(top)),
                         .several_paths = several_paths(network->topology, workers)};
  // Strays are groups of their own as long as there are enough.
  std::size_t strays = 1;
  divide(placement, sites, strays, listed);
  while (placement.groups.size() > wire::kAtpMostGroups && strays < wire::kAtpMostWorkersPerGroup) {
    divide(placement, sites, ++strays, listed);
  }
  if (placement.groups.size() <= wire::kAtpMostGroups) return placement;
  return Error(fmt::format(
      "{} ranks make {} groups of up to {} (the ranks that one switch sums first); up to {} groups "
      "are allowed",
      ranks, placement.groups.size(), wire::kAtpMostWorkersPerGroup, wire::kAtpMostGroups));
}

}  // namespace thalweg::net
