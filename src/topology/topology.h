// A network: hosts, switches, the links between them and the regions (rack, pod, …) they sit in.
//
// A Topology is an immutable value. Hosts are numbered in the order they were added, and host i is
// rank i of a job that uses all of them. A link is full duplex; its two directions are arcs, each
// with the link's rate: arc 2l runs from a to b, arc 2l+1 back.
//
// Regions form a tree. Region 0 is the whole network and has no name and no parent; every node is
// in exactly one region, the innermost.
//
// Invariants (TopologyBuilder::build checks them):
// 1. There is a host; node names are unique, and so are region names.
// 2. Every rate is above zero; no link joins a node to itself; a host has at least one link
//    (unless it is the only node).
// 3. Every host can reach every other, through switches only or by a direct link.
// 4. Regions are a tree; hosts() of a region are in rank order.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"

namespace thalweg {

using NodeId = Id<struct NodeIdTag>;
using LinkId = Id<struct LinkIdTag>;
using ArcId = Id<struct ArcIdTag>;
using RegionId = Id<struct RegionIdTag>;

inline constexpr RegionId kWholeNetwork{0};

enum class NodeKind : std::uint8_t { kHost, kSwitch };

struct Node {
  std::string name;
  NodeKind kind = NodeKind::kHost;
  RegionId region = kWholeNetwork;
};

struct LinkSpec {
  Bandwidth rate;   // of each direction
  Duration delay;   // propagation, one way
  Bytes buffer;     // of the switch port that feeds it; 0: not stated
};

struct Link {
  NodeId a;
  NodeId b;
  LinkSpec spec;
};

struct Arc {
  NodeId from;
  NodeId to;
  LinkSpec spec;
};

struct Region {
  std::string name;
  RegionId parent;                // invalid for the whole network
  int depth = 0;                  // 0 for the whole network
  std::vector<RegionId> children;
  std::vector<Rank> hosts;        // of this region and all regions within it
  // The rate at which its hosts can send together, over the rate of the links that leave it.
  // 1 or below: not oversubscribed. 0 where nothing leaves it.
  double oversubscription = 0;
};

class Topology {
 public:
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::span<const Node> nodes() const { return nodes_; }
  [[nodiscard]] std::span<const Link> links() const { return links_; }
  [[nodiscard]] std::span<const Region> regions() const { return regions_; }

  [[nodiscard]] int host_count() const { return static_cast<int>(hosts_.size()); }
  [[nodiscard]] std::size_t arc_count() const { return links_.size() * 2; }
  [[nodiscard]] const Node& node(NodeId id) const { return nodes_[id.index()]; }
  [[nodiscard]] const Region& region(RegionId id) const { return regions_[id.index()]; }
  [[nodiscard]] NodeId host(Rank rank) const { return hosts_[rank.index()]; }
  // Invalid for a switch.
  [[nodiscard]] Rank rank_of(NodeId id) const { return ranks_[id.index()]; }
  // The innermost region of a host.
  [[nodiscard]] RegionId region_of(Rank rank) const { return node(host(rank)).region; }
  [[nodiscard]] Arc arc(ArcId id) const;
  // "rack0-leaf → spine1", for people.
  [[nodiscard]] std::string arc_name(ArcId id) const;
  [[nodiscard]] std::span<const ArcId> arcs_from(NodeId id) const {
    return arcs_from_[id.index()];
  }
  // Invalid if there is none.
  [[nodiscard]] NodeId find_node(std::string_view name) const;
  [[nodiscard]] RegionId find_region(std::string_view name) const;
  // True if `inner` is `outer` or lies within it.
  [[nodiscard]] bool contains(RegionId outer, RegionId inner) const;

 private:
  friend class TopologyBuilder;
  Topology() = default;

  std::string name_;
  std::vector<Node> nodes_;
  std::vector<Link> links_;
  std::vector<Region> regions_;
  std::vector<NodeId> hosts_;
  std::vector<Rank> ranks_;
  std::vector<std::vector<ArcId>> arcs_from_;
};

// Collects the parts of a Topology and checks them. Each add_ returns the new part's id, or an
// error that names the part and what is wrong with it; build() checks what needs the whole.
class TopologyBuilder {
 public:
  explicit TopologyBuilder(std::string name);

  Result<RegionId> add_region(std::string name, RegionId parent);
  Result<NodeId> add_host(std::string name, RegionId region);
  Result<NodeId> add_switch(std::string name, RegionId region);
  Result<LinkId> add_link(NodeId a, NodeId b, LinkSpec spec);

  // A host that cannot be reached from the first is named in the error.
  Result<Topology> build() &&;

 private:
  Result<NodeId> add_node(std::string name, NodeKind kind, RegionId region);

  Topology topology_;
  std::unordered_map<std::string, NodeId> node_names_;
  std::unordered_map<std::string, RegionId> region_names_;
};

}  // namespace thalweg
