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
// 1. There is a host; node names are unique, and so are region names; is_good_name() holds.
// 2. Every rate is above zero; no link joins a node to itself; a host has at least one link
//    (unless it is the only node); the limits below hold.
// 3. Every host can reach every other, through switches only or by a direct link.
// 4. Regions are a tree; hosts() of a region are in rank order.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"

namespace thalweg::topology {

using NodeId = Id<struct NodeIdTag>;
using LinkId = Id<struct LinkIdTag>;
using ArcId = Id<struct ArcIdTag>;
using RegionId = Id<struct RegionIdTag>;

inline constexpr RegionId kWholeNetwork{0};

// Limits. A larger network counts as a mistake and is rejected before memory is spent on it.
inline constexpr int kMaxNodes = 65'536;
inline constexpr int kMaxLinks = 1'048'576;
inline constexpr int kMaxRegions = 65'536;
inline constexpr int kMaxRegionDepth = 16;
inline constexpr std::size_t kMaxNameLength = 128;  // in bytes
inline constexpr Bandwidth kMaxRate = Bandwidth::gbps(1'000'000);
inline constexpr Duration kMaxDelay = Duration::milliseconds(1'000);
inline constexpr Bytes kMaxBuffer{std::int64_t{1} << 40};

enum class NodeKind : std::uint8_t { kHost, kSwitch };

struct Node {
  std::string name;
  NodeKind kind = NodeKind::kHost;
  RegionId region = kWholeNetwork;
  bool operator==(const Node&) const = default;
};

struct LinkSpec {
  Bandwidth rate;  // per direction
  Duration delay;  // propagation, one way
  Bytes buffer;    // buffer of the switch port that feeds the link; 0: not stated
  bool operator==(const LinkSpec&) const = default;
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
  RegionId parent;  // invalid for the whole network
  int depth = 0;    // 0 for the whole network
  std::vector<RegionId> children;
  std::vector<Rank> hosts;  // in this region and all regions within it
  // The rate at which its hosts can send together, divided by the rate of the links that leave it.
  // 1 or below: not oversubscribed. 0 if no link leaves it.
  double oversubscription = 0;
  bool operator==(const Region&) const = default;
};

// True for 1 to kMaxNameLength bytes of UTF-8 without control characters.
bool is_good_name(std::string_view name);

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
  // A name for people: "rack0-leaf → spine1".
  [[nodiscard]] std::string arc_name(ArcId id) const;
  [[nodiscard]] std::span<const ArcId> arcs_from(NodeId id) const { return arcs_from_[id.index()]; }
  // Invalid if there is no such node or region.
  [[nodiscard]] NodeId find_node(std::string_view name) const;
  [[nodiscard]] RegionId find_region(std::string_view name) const;
  // True if `inner` is `outer` or lies within it.
  [[nodiscard]] bool contains(RegionId outer, RegionId inner) const;

  // Whether both describe the same network: the same regions, hosts, switches and links, each in
  // the same order. How hosts and switches interleave in nodes() does not matter.
  bool operator==(const Topology& other) const;

 private:
  friend class TopologyBuilder;
  Topology() = default;

  struct NameHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view name) const {
      return std::hash<std::string_view>{}(name);
    }
  };
  template <class T>
  using NameMap = std::unordered_map<std::string, T, NameHash, std::equal_to<>>;

  std::string name_;
  std::vector<Node> nodes_;
  std::vector<Link> links_;
  std::vector<Region> regions_;
  std::vector<NodeId> hosts_;
  std::vector<Rank> ranks_;
  std::vector<std::vector<ArcId>> arcs_from_;
  NameMap<NodeId> node_names_;
  NameMap<RegionId> region_names_;
};

// Collects the parts of a Topology and checks them. Each add_ function returns the new part's id,
// or an error that names the part and what is wrong with it; build() checks the whole.
class TopologyBuilder {
 public:
  explicit TopologyBuilder(std::string name);

  Result<RegionId> add_region(std::string name, RegionId parent);
  Result<NodeId> add_host(std::string name, RegionId region);
  Result<NodeId> add_switch(std::string name, RegionId region);
  // Both ends must be ids that this builder gave out.
  Result<LinkId> add_link(NodeId a, NodeId b, LinkSpec spec);

  // Two hosts that no path connects (invariant 3).
  struct Gap {
    NodeId from;
    NodeId to;
  };
  // The first such pair in rank order, for a reader that wants to say where the hosts were written.
  [[nodiscard]] std::optional<Gap> find_gap() const;

  // An error names what breaks invariant 1 or 3, and the hosts concerned.
  Result<Topology> build() &&;

 private:
  [[nodiscard]] bool is_node(NodeId id) const {
    return id.valid() && id.index() < topology_.nodes_.size();
  }
  [[nodiscard]] bool is_region(RegionId id) const {
    return id.valid() && id.index() < topology_.regions_.size();
  }
  Result<NodeId> add_node(std::string name, NodeKind kind, RegionId region);
  void fill_region_hosts();
  void fill_oversubscription();

  Topology topology_;
};

// The same network with only these hosts, in this order: rank i is hosts[i]. Requires at least one
// host and none twice.
Topology restricted_to(const Topology& topology, std::span<const Rank> hosts);

}  // namespace thalweg::topology
