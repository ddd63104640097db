// What must hold for every Topology and its Routing, however they were built. For unit tests and
// fuzzers.
#pragma once

#include <fmt/core.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "topology/routing.h"
#include "topology/topology.h"

namespace thalweg::topology {

inline std::string broken_region_invariant(const Topology& t) {
  std::set<std::string> names;
  for (std::size_t r = 1; r < t.regions().size(); ++r) {
    const Region& region = t.regions()[r];
    if (!names.insert(region.name).second) return "region name twice: " + region.name;
    if (!is_good_name(region.name)) return "bad region name";
    if (!region.parent.valid() || region.parent.index() >= t.regions().size()) return "no parent";
    if (region.depth != t.region(region.parent).depth + 1) return "wrong depth: " + region.name;
  }
  for (std::size_t r = 0; r < t.regions().size(); ++r) {
    const RegionId id(static_cast<std::int32_t>(r));
    std::vector<Rank> inside;
    double sending = 0;
    for (std::int32_t h = 0; h < t.host_count(); ++h) {
      if (!t.contains(id, t.region_of(Rank(h)))) continue;
      inside.emplace_back(h);
      for (const ArcId arc : t.arcs_from(t.host(Rank(h)))) {
        sending += static_cast<double>(t.arc(arc).spec.rate.bps());
      }
    }
    if (inside != t.region(id).hosts) return fmt::format("wrong hosts of region {}", r);
    double leaving = 0;
    for (const Link& link : t.links()) {
      const bool a = t.contains(id, t.node(link.a).region);
      const bool b = t.contains(id, t.node(link.b).region);
      if (a != b) leaving += static_cast<double>(link.spec.rate.bps());
    }
    const double ratio = leaving > 0 ? sending / leaving : 0;
    if (std::abs(ratio - t.region(id).oversubscription) > 1e-9 * ratio) {
      return fmt::format("oversubscription of region {}: {}, expected {}", r,
                         t.region(id).oversubscription, ratio);
    }
  }
  return "";
}

// The first invariant of topology.h that does not hold; empty if all do.
inline std::string broken_invariant(const Topology& t) {
  if (t.host_count() < 1) return "no host";
  std::set<std::string> names;
  for (std::size_t n = 0; n < t.nodes().size(); ++n) {
    const Node& node = t.nodes()[n];
    const NodeId id(static_cast<std::int32_t>(n));
    if (!names.insert(node.name).second) return "node name twice: " + node.name;
    if (!is_good_name(node.name)) return "bad node name";
    if (t.find_node(node.name) != id) return "find_node: " + node.name;
    if ((node.kind == NodeKind::kHost) != t.rank_of(id).valid()) return "rank_of: " + node.name;
    for (const ArcId arc : t.arcs_from(id)) {
      if (t.arc(arc).from != id) return "arcs_from: " + node.name;
    }
  }
  for (const Link& link : t.links()) {
    if (link.a == link.b) return "self link";
    if (link.spec.rate <= Bandwidth()) return "zero rate";
  }
  return broken_region_invariant(t);
}

// Checks that a flow leaves each node as it enters it, and starts at `from` and ends at `to` in
// full.
inline std::string broken_conservation(const Topology& t, const Routing& routing, Rank from,
                                       Rank to) {
  std::vector<double> balance(t.nodes().size());
  std::set<std::int32_t> seen;
  for (const ArcShare& share : routing.shares(from, to)) {
    if (!seen.insert(share.arc.value()).second) return "arc twice: " + t.arc_name(share.arc);
    if (std::isnan(share.fraction) || share.fraction < 0 || share.fraction > 1 + 1e-9) {
      return "fraction out of range";
    }
    const Arc arc = t.arc(share.arc);
    balance[arc.from.index()] -= share.fraction;
    balance[arc.to.index()] += share.fraction;
    if (routing.distance(arc.to, to) + 1 != routing.distance(arc.from, to)) {
      return "not on a shortest path: " + t.arc_name(share.arc);
    }
  }
  if (from != to) {
    balance[t.host(from).index()] += 1;
    balance[t.host(to).index()] -= 1;
  }
  for (std::size_t n = 0; n < balance.size(); ++n) {
    if (std::abs(balance[n]) > 1e-9) {
      return fmt::format("{} keeps {} of the flow from {} to {}", t.nodes()[n].name, balance[n],
                         from.value(), to.value());
    }
  }
  return "";
}

}  // namespace thalweg::topology
