#include "topology/builders.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"

namespace thalweg::topology {
namespace {

// Rejects what is too large before anything is allocated. Each count is at most kMaxNodes, so
// products of three of them do not overflow.
Status check_size(std::int64_t hosts, std::int64_t switches, std::int64_t links) {
  if (hosts + switches > kMaxNodes) {
    return Error(fmt::format("{} hosts and {} switches are too many: at most {} nodes", hosts,
                             switches, kMaxNodes));
  }
  if (links > kMaxLinks) {
    return Error(fmt::format("{} links are too many: at most {}", links, kMaxLinks));
  }
  return ok_status();
}

// A region with one switch and the hosts under it. The names of both start with the region's name.
struct Rack {
  RegionId region;
  NodeId leaf;
};

Result<Rack> add_rack(TopologyBuilder& builder, const std::string& name, RegionId parent,
                      std::string switch_name, std::int64_t hosts, const LinkSpec& host_link) {
  Rack rack;
  THALWEG_TRY(rack.region, builder.add_region(name, parent));
  THALWEG_TRY(rack.leaf, builder.add_switch(std::move(switch_name), rack.region));
  for (std::int64_t h = 0; h < hosts; ++h) {
    THALWEG_TRY(const NodeId host,
                builder.add_host(fmt::format("{}-host{}", name, h), rack.region));
    THALWEG_TRY([[maybe_unused]] const LinkId link, builder.add_link(host, rack.leaf, host_link));
  }
  return rack;
}

Result<std::vector<NodeId>> add_switches(TopologyBuilder& builder, const std::string& prefix,
                                         RegionId region, std::int64_t count) {
  std::vector<NodeId> switches;
  for (std::int64_t i = 0; i < count; ++i) {
    THALWEG_TRY(const NodeId id, builder.add_switch(fmt::format("{}{}", prefix, i), region));
    switches.push_back(id);
  }
  return switches;
}

Status join_all(TopologyBuilder& builder, NodeId lower, std::span<const NodeId> uppers,
                const LinkSpec& spec) {
  for (const NodeId upper : uppers) {
    THALWEG_TRY([[maybe_unused]] const LinkId link, builder.add_link(lower, upper, spec));
  }
  return ok_status();
}

Result<Topology> build_single_switch(const TopologyArguments& arguments, std::string name) {
  const std::int64_t hosts = arguments.get("hosts");
  THALWEG_TRY_STATUS(check_size(hosts, 1, hosts));
  TopologyBuilder builder(std::move(name));
  THALWEG_TRY(const NodeId hub, builder.add_switch("switch0", kWholeNetwork));
  for (std::int64_t h = 0; h < hosts; ++h) {
    THALWEG_TRY(const NodeId host, builder.add_host(fmt::format("host{}", h), kWholeNetwork));
    THALWEG_TRY([[maybe_unused]] const LinkId link,
                builder.add_link(host, hub, arguments.link("host")));
  }
  return std::move(builder).build();
}

Result<Topology> build_leaf_spine(const TopologyArguments& arguments, std::string name) {
  const std::int64_t racks = arguments.get("racks");
  const std::int64_t hosts = arguments.get("hosts");
  const std::int64_t spines = arguments.get("spines");
  THALWEG_TRY_STATUS(check_size(racks * hosts, racks + spines, racks * (hosts + spines)));
  TopologyBuilder builder(std::move(name));
  THALWEG_TRY(const std::vector<NodeId> tops,
              add_switches(builder, "spine", kWholeNetwork, spines));
  for (std::int64_t r = 0; r < racks; ++r) {
    THALWEG_TRY(const Rack rack, add_rack(builder, fmt::format("rack{}", r), kWholeNetwork,
                                          fmt::format("leaf{}", r), hosts, arguments.link("host")));
    THALWEG_TRY_STATUS(join_all(builder, rack.leaf, tops, arguments.link("uplink")));
  }
  return std::move(builder).build();
}

// Al-Fares, Loukissas and Vahdat (SIGCOMM 2008): k pods of k/2 edge and k/2 aggregation switches,
// k/2 hosts per edge switch, and (k/2)² cores; the j-th aggregation switch of every pod has links
// to the j-th group of k/2 cores.
Result<Topology> build_fat_tree(const TopologyArguments& arguments, std::string name) {
  const std::int64_t k = arguments.get("k");
  if (k % 2 != 0) return Error(fmt::format("key 'k': {} is odd: write an even number", k));
  const std::int64_t half = k / 2;
  THALWEG_TRY_STATUS(check_size(k * half * half, k * k + half * half, 3 * k * half * half));
  TopologyBuilder builder(std::move(name));
  THALWEG_TRY(const std::vector<NodeId> cores,
              add_switches(builder, "core", kWholeNetwork, half * half));
  for (std::int64_t p = 0; p < k; ++p) {
    const std::string pod_name = fmt::format("pod{}", p);
    THALWEG_TRY(const RegionId pod, builder.add_region(pod_name, kWholeNetwork));
    THALWEG_TRY(const std::vector<NodeId> aggs,
                add_switches(builder, pod_name + "-agg", pod, half));
    for (std::int64_t r = 0; r < half; ++r) {
      THALWEG_TRY(const Rack rack,
                  add_rack(builder, fmt::format("{}-rack{}", pod_name, r), pod,
                           fmt::format("{}-edge{}", pod_name, r), half, arguments.link("host")));
      THALWEG_TRY_STATUS(join_all(builder, rack.leaf, aggs, arguments.link("agg")));
    }
    for (std::size_t j = 0; j < aggs.size(); ++j) {
      const auto group = std::span(cores).subspan(j * aggs.size(), aggs.size());
      THALWEG_TRY_STATUS(join_all(builder, aggs[j], group, arguments.link("core")));
    }
  }
  return std::move(builder).build();
}

Result<Topology> build_three_tier(const TopologyArguments& arguments, std::string name) {
  const std::int64_t pods = arguments.get("pods");
  const std::int64_t racks = arguments.get("racks");
  const std::int64_t hosts = arguments.get("hosts");
  const std::int64_t aggs = arguments.get("aggs");
  const std::int64_t cores = arguments.get("cores");
  THALWEG_TRY_STATUS(check_size(pods * racks * hosts, pods * (racks + aggs) + cores,
                                pods * racks * hosts + pods * racks * aggs + pods * aggs * cores));
  TopologyBuilder builder(std::move(name));
  THALWEG_TRY(const std::vector<NodeId> tops, add_switches(builder, "core", kWholeNetwork, cores));
  for (std::int64_t p = 0; p < pods; ++p) {
    const std::string pod_name = fmt::format("pod{}", p);
    THALWEG_TRY(const RegionId pod, builder.add_region(pod_name, kWholeNetwork));
    THALWEG_TRY(const std::vector<NodeId> middles,
                add_switches(builder, pod_name + "-agg", pod, aggs));
    for (std::int64_t r = 0; r < racks; ++r) {
      THALWEG_TRY(const Rack rack,
                  add_rack(builder, fmt::format("{}-rack{}", pod_name, r), pod,
                           fmt::format("{}-tor{}", pod_name, r), hosts, arguments.link("host")));
      THALWEG_TRY_STATUS(join_all(builder, rack.leaf, middles, arguments.link("rack")));
    }
    for (const NodeId middle : middles) {
      THALWEG_TRY_STATUS(join_all(builder, middle, tops, arguments.link("agg")));
    }
  }
  return std::move(builder).build();
}

constexpr TopologyKey kDelayKey{"delay", KeyUnit::kDelay, "1us", "of each link, one way"};
constexpr TopologyKey kBufferKey{"buffer", KeyUnit::kBuffer, "512KiB", "of each switch port"};

}  // namespace

std::int64_t TopologyArguments::get(std::string_view key) const {
  const auto found = std::find_if(values_.begin(), values_.end(),
                                  [&](const auto& entry) { return entry.first == key; });
  CHECK(found != values_.end(), "no key '{}'", key);
  return found->second;
}

LinkSpec TopologyArguments::link(std::string_view rate_key) const {
  return {Bandwidth::bits_per_second(get(rate_key)), Duration::picoseconds(get("delay")),
          Bytes(get("buffer"))};
}

std::span<const TopologyKind> topology_kinds() {
  using enum KeyUnit;
  static const std::vector<TopologyKind> kinds{
      {"single-switch",
       "all hosts on one switch",
       {{"hosts", kCount, "8", "hosts"},
        {"host", kRate, "10G", "rate of a host's link"},
        kDelayKey,
        kBufferKey},
       build_single_switch},
      {"leaf-spine",
       "racks whose leaf switch has a link to every spine",
       {{"racks", kCount, "2", "racks"},
        {"hosts", kCount, "4", "hosts a rack"},
        {"spines", kCount, "1", "spine switches"},
        {"host", kRate, "10G", "rate of a host's link"},
        {"uplink", kRate, "=host", "rate of each link from a leaf to a spine"},
        kDelayKey,
        kBufferKey},
       build_leaf_spine},
      {"fat-tree",
       "k pods of k/2 racks of k/2 hosts",
       {{"k", kCount, "4", "ports a switch, even"},
        {"host", kRate, "10G", "rate of a host's link"},
        {"agg", kRate, "=host", "rate of a link from an edge to an aggregation switch"},
        {"core", kRate, "=agg", "rate of a link from an aggregation to a core switch"},
        kDelayKey,
        kBufferKey},
       build_fat_tree},
      {"three-tier",
       "pods of racks, joined by aggregation and core switches",
       {{"pods", kCount, "2", "pods"},
        {"racks", kCount, "2", "racks a pod"},
        {"hosts", kCount, "4", "hosts a rack"},
        {"aggs", kCount, "2", "aggregation switches a pod"},
        {"cores", kCount, "2", "core switches"},
        {"host", kRate, "10G", "rate of a host's link"},
        {"rack", kRate, "40G", "rate of each link from a rack to an aggregation switch"},
        {"agg", kRate, "100G", "rate of each link from an aggregation to a core switch"},
        kDelayKey,
        kBufferKey},
       build_three_tier},
  };
  return kinds;
}

}  // namespace thalweg::topology
