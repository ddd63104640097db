#include "topology/topology.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "topology/format/text.h"
#include "topology/with_hosts.h"
#include "topology/with_links.h"

namespace thalweg::topology {
namespace {

Status check_name(std::string_view what, std::string_view name) {
  if (is_good_name(name)) return ok_status();
  return Error(
      fmt::format("{} name '{}' is not allowed: use 1 to {} bytes of UTF-8 without "
                  "control characters",
                  what, name.substr(0, kMaxNameLength), kMaxNameLength));
}

std::string_view word_for(NodeKind kind) { return kind == NodeKind::kHost ? "host" : "switch"; }

// Which switches reach each other without passing a host: union-find with path halving.
class SwitchGroups {
 public:
  explicit SwitchGroups(std::size_t nodes) : parents_(nodes) {
    std::iota(parents_.begin(), parents_.end(), std::size_t{0});
  }
  std::size_t find(std::size_t node) {
    while (parents_[node] != node) node = parents_[node] = parents_[parents_[node]];
    return node;
  }
  void join(std::size_t a, std::size_t b) { parents_[find(a)] = find(b); }

 private:
  std::vector<std::size_t> parents_;
};

void sort_unique(std::vector<std::size_t>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

// Puts these hosts, in this order, the regions, the switches and the links between them, with specs
// from `spec_of`, into an empty builder. Returns the copy of each node of the original; invalid
// where there is none.
std::vector<NodeId> copy_into(TopologyBuilder& builder, const Topology& topology,
                              std::span<const Rank> hosts,
                              const std::function<LinkSpec(LinkId link)>& spec_of) {
  for (const Region& region : topology.regions().subspan(1)) {
    CHECK(builder.add_region(region.name, region.parent).ok());
  }
  std::vector<NodeId> copies(topology.nodes().size());
  for (const Rank rank : hosts) {
    const NodeId original = topology.host(rank);
    const Node& node = topology.node(original);
    copies[original.index()] = builder.add_host(node.name, node.region).value();
  }
  for (std::size_t n = 0; n < topology.nodes().size(); ++n) {
    const Node& node = topology.nodes()[n];
    if (node.kind == NodeKind::kSwitch) {
      copies[n] = builder.add_switch(node.name, node.region).value();
    }
  }
  for (LinkId id(0); id.index() < topology.links().size(); ++id) {
    const Link& link = topology.links()[id.index()];
    const NodeId a = copies[link.a.index()];
    const NodeId b = copies[link.b.index()];
    if (a.valid() && b.valid()) CHECK(builder.add_link(a, b, spec_of(id)).ok());
  }
  return copies;
}

Topology copy_of(const Topology& topology, std::span<const Rank> hosts,
                 const std::function<LinkSpec(LinkId link)>& spec_of) {
  TopologyBuilder builder(topology.name());
  copy_into(builder, topology, hosts, spec_of);
  return std::move(builder).build().value();
}

}  // namespace

bool is_good_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxNameLength) return false;
  return first_unprintable(name) == name.size();
}

Arc Topology::arc(ArcId id) const {
  const Link& link = links_[id.index() / 2];
  if (id.index() % 2 == 0) return {link.a, link.b, link.spec};
  return {link.b, link.a, link.spec};
}

std::string Topology::arc_name(ArcId id) const {
  const Arc ends = arc(id);
  return fmt::format("{} → {}", node(ends.from).name, node(ends.to).name);
}

NodeId Topology::find_node(std::string_view name) const {
  const auto found = node_names_.find(name);
  return found == node_names_.end() ? NodeId{} : found->second;
}

RegionId Topology::find_region(std::string_view name) const {
  const auto found = region_names_.find(name);
  return found == region_names_.end() ? RegionId{} : found->second;
}

bool Topology::contains(RegionId outer, RegionId inner) const {
  while (region(inner).depth > region(outer).depth) inner = region(inner).parent;
  return inner == outer;
}

bool Topology::operator==(const Topology& other) const {
  const auto switches = [](const Topology& topology) {
    std::vector<Node> found;
    for (const Node& node : topology.nodes_) {
      if (node.kind == NodeKind::kSwitch) found.push_back(node);
    }
    return found;
  };
  if (name_ != other.name_ || regions_ != other.regions_ || hosts_.size() != other.hosts_.size() ||
      links_.size() != other.links_.size() || switches(*this) != switches(other)) {
    return false;
  }
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (node(hosts_[i]) != other.node(other.hosts_[i])) return false;
  }
  for (std::size_t i = 0; i < links_.size(); ++i) {
    const Link& mine = links_[i];
    const Link& theirs = other.links_[i];
    if (mine.spec != theirs.spec || node(mine.a).name != other.node(theirs.a).name ||
        node(mine.b).name != other.node(theirs.b).name) {
      return false;
    }
  }
  return true;
}

TopologyBuilder::TopologyBuilder(std::string name) {
  topology_.name_ = std::move(name);
  topology_.regions_.emplace_back();
}

Result<RegionId> TopologyBuilder::add_region(std::string name, RegionId parent) {
  CHECK(is_region(parent));
  THALWEG_TRY_STATUS(check_name("region", name));
  if (topology_.regions_.size() > kMaxRegions) {
    return Error(fmt::format("region '{}' is one too many: at most {}", name, kMaxRegions));
  }
  const int depth = topology_.region(parent).depth + 1;
  if (depth > kMaxRegionDepth) {
    return Error(
        fmt::format("region '{}' is nested {} deep: at most {}", name, depth, kMaxRegionDepth));
  }
  const RegionId id(static_cast<std::int32_t>(topology_.regions_.size()));
  if (!topology_.region_names_.emplace(name, id).second) {
    return Error(fmt::format("region name '{}' is used twice: names are unique", name));
  }
  Region region;
  region.name = std::move(name);
  region.parent = parent;
  region.depth = depth;
  topology_.regions_.push_back(std::move(region));
  topology_.regions_[parent.index()].children.push_back(id);
  return id;
}

Result<NodeId> TopologyBuilder::add_host(std::string name, RegionId region) {
  THALWEG_TRY(const NodeId id, add_node(std::move(name), NodeKind::kHost, region));
  topology_.ranks_.back() = Rank(static_cast<std::int32_t>(topology_.hosts_.size()));
  topology_.hosts_.push_back(id);
  return id;
}

Result<NodeId> TopologyBuilder::add_switch(std::string name, RegionId region) {
  return add_node(std::move(name), NodeKind::kSwitch, region);
}

Result<NodeId> TopologyBuilder::add_node(std::string name, NodeKind kind, RegionId region) {
  CHECK(is_region(region));
  THALWEG_TRY_STATUS(check_name(word_for(kind), name));
  if (topology_.nodes_.size() >= kMaxNodes) {
    return Error(fmt::format("{} '{}' is one node too many: at most {} hosts and switches",
                             word_for(kind), name, kMaxNodes));
  }
  const NodeId id(static_cast<std::int32_t>(topology_.nodes_.size()));
  if (!topology_.node_names_.emplace(name, id).second) {
    return Error(
        fmt::format("node name '{}' is used twice: hosts and switches need unique names", name));
  }
  topology_.nodes_.push_back({std::move(name), kind, region});
  topology_.ranks_.emplace_back();
  topology_.arcs_from_.emplace_back();
  return id;
}

Result<LinkId> TopologyBuilder::add_link(NodeId a, NodeId b, LinkSpec spec) {
  CHECK(is_node(a));
  CHECK(is_node(b));
  const auto bad = [&](const std::string& reason) {
    return Error(
        fmt::format("link {} – {}: {}", topology_.node(a).name, topology_.node(b).name, reason));
  };
  if (a == b) return bad("joins a node to itself: name two different nodes");
  if (spec.rate <= Bandwidth() || spec.rate > kMaxRate) {
    return bad(fmt::format("rate {} is out of range: above 0, at most {}", to_string(spec.rate),
                           to_string(kMaxRate)));
  }
  if (spec.delay < Duration() || spec.delay > kMaxDelay) {
    return bad(fmt::format("delay {} is out of range: 0 to {}", to_string(spec.delay),
                           to_string(kMaxDelay)));
  }
  if (spec.buffer < Bytes() || spec.buffer > kMaxBuffer) {
    return bad(fmt::format("buffer {} is out of range: 0 to {}", to_string(spec.buffer),
                           to_string(kMaxBuffer)));
  }
  if (topology_.links_.size() >= kMaxLinks) {
    return bad(fmt::format("one link too many: at most {}", kMaxLinks));
  }
  const auto link = static_cast<std::int32_t>(topology_.links_.size());
  topology_.links_.push_back({a, b, spec});
  topology_.arcs_from_[a.index()].emplace_back(2 * link);
  topology_.arcs_from_[b.index()].emplace_back(2 * link + 1);
  return LinkId(link);
}

// Hosts do not forward, so reaching is not transitive over hosts. Two hosts are joined if they
// share a direct link or both have a link to the same group of interconnected switches. In nearly
// every network one group reaches all hosts; only when none does is each host compared with all
// others.
std::optional<TopologyBuilder::Gap> TopologyBuilder::find_gap() const {
  const Topology& t = topology_;
  SwitchGroups groups(t.nodes_.size());
  for (const Link& link : t.links_) {
    if (!t.rank_of(link.a).valid() && !t.rank_of(link.b).valid()) {
      groups.join(link.a.index(), link.b.index());
    }
  }
  std::vector<std::vector<std::size_t>> groups_of(t.hosts_.size());
  std::vector<std::vector<std::size_t>> direct(t.hosts_.size());
  std::vector<std::vector<std::size_t>> hosts_of_group(t.nodes_.size());
  bool one_group_touches_all = t.hosts_.size() < 2;
  for (std::size_t h = 0; h < t.hosts_.size(); ++h) {
    for (const ArcId arc : t.arcs_from(t.hosts_[h])) {
      const NodeId peer = t.arc(arc).to;
      const Rank rank = t.rank_of(peer);
      if (rank.valid()) direct[h].push_back(rank.index());
      if (!rank.valid()) groups_of[h].push_back(groups.find(peer.index()));
    }
    sort_unique(groups_of[h]);
    for (const std::size_t group : groups_of[h]) {
      hosts_of_group[group].push_back(h);
      one_group_touches_all |= hosts_of_group[group].size() == t.hosts_.size();
    }
  }
  if (one_group_touches_all) return std::nullopt;

  std::vector<std::size_t> reached_by(t.hosts_.size(), t.hosts_.size());
  for (std::size_t h = 0; h < t.hosts_.size(); ++h) {
    reached_by[h] = h;
    for (const std::size_t peer : direct[h]) reached_by[peer] = h;
    for (const std::size_t group : groups_of[h]) {
      for (const std::size_t peer : hosts_of_group[group]) reached_by[peer] = h;
    }
    for (std::size_t peer = 0; peer < t.hosts_.size(); ++peer) {
      if (reached_by[peer] != h) return Gap{t.hosts_[h], t.hosts_[peer]};
    }
  }
  return std::nullopt;
}

Result<Topology> TopologyBuilder::build() && {
  if (!topology_.name_.empty()) THALWEG_TRY_STATUS(check_name("topology", topology_.name_));
  if (topology_.hosts_.empty()) return Error("the topology has no host: at least one is needed");
  for (const NodeId host : topology_.hosts_) {
    if (topology_.nodes_.size() > 1 && topology_.arcs_from(host).empty()) {
      return Error(fmt::format("host '{}' has no link", topology_.node(host).name));
    }
  }
  if (const std::optional<Gap> gap = find_gap()) {
    return Error(fmt::format("host '{}' cannot be reached from host '{}' (hosts do not forward)",
                             topology_.node(gap->to).name, topology_.node(gap->from).name));
  }
  fill_region_hosts();
  fill_oversubscription();
  return std::move(topology_);
}

void TopologyBuilder::fill_region_hosts() {
  for (std::size_t h = 0; h < topology_.hosts_.size(); ++h) {
    const Rank rank(static_cast<std::int32_t>(h));
    for (RegionId r = topology_.region_of(rank); r.valid(); r = topology_.region(r).parent) {
      topology_.regions_[r.index()].hosts.push_back(rank);
    }
  }
}

// A link leaves the regions that hold exactly one of its ends: those between either end and the
// innermost region that holds both.
void TopologyBuilder::fill_oversubscription() {
  Topology& t = topology_;
  std::vector<double> leaving(t.regions_.size());
  std::vector<double> sending(t.regions_.size());
  for (const Link& link : t.links_) {
    const auto rate = static_cast<double>(link.spec.rate.bps());
    for (const auto& [inner, outer] : {std::pair(link.a, link.b), std::pair(link.b, link.a)}) {
      RegionId r = t.node(inner).region;
      const bool from_host = t.rank_of(inner).valid();
      for (; r.valid(); r = t.region(r).parent) {
        if (from_host) sending[r.index()] += rate;
        if (!t.contains(r, t.node(outer).region)) leaving[r.index()] += rate;
      }
    }
  }
  for (std::size_t r = 0; r < t.regions_.size(); ++r) {
    t.regions_[r].oversubscription = leaving[r] > 0 ? sending[r] / leaving[r] : 0;
  }
}

Topology restricted_to(const Topology& topology, std::span<const Rank> hosts) {
  return copy_of(topology, hosts, [&](LinkId link) { return topology.links()[link.index()].spec; });
}

Result<Topology> with_hosts(const Topology& topology, std::span<const AddedHost> added) {
  TopologyBuilder builder(topology.name());
  const std::vector<NodeId> copies =
      copy_into(builder, topology, topology.region(kWholeNetwork).hosts,
                [&](LinkId link) { return topology.links()[link.index()].spec; });
  for (const AddedHost& one : added) {
    THALWEG_TRY(const NodeId host, builder.add_host(one.name, topology.node(one.at).region));
    THALWEG_TRY([[maybe_unused]] const LinkId link,
                builder.add_link(copies[one.at.index()], host, one.spec));
  }
  return std::move(builder).build();
}

Topology with_links(const Topology& topology, const std::function<LinkSpec(LinkId link)>& spec_of) {
  return copy_of(topology, topology.region(kWholeNetwork).hosts, spec_of);
}

}  // namespace thalweg::topology
