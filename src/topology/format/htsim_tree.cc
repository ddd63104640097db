#include "topology/format/htsim_tree.h"

#include <fmt/core.h>

#include <vector>

namespace thalweg::topology {
namespace {

Status join(TopologyBuilder& builder, NodeId lower, NodeId upper, const LinkSpec& spec,
            std::int64_t times) {
  for (std::int64_t i = 0; i < times; ++i) {
    THALWEG_TRY([[maybe_unused]] const LinkId link, builder.add_link(lower, upper, spec));
  }
  return ok_status();
}

Status add_htsim_rack(TopologyBuilder& builder, const HtsimTree& tree, std::int64_t rack_number,
                      RegionId pod, const std::vector<NodeId>& uppers) {
  THALWEG_TRY(const RegionId rack, builder.add_region(fmt::format("rack{}", rack_number), pod));
  THALWEG_TRY(const NodeId tor, builder.add_switch(fmt::format("tor{}", rack_number), rack));
  for (std::int64_t h = 0; h < tree.hosts; ++h) {
    THALWEG_TRY(const NodeId host,
                builder.add_host(fmt::format("host{}", rack_number * tree.hosts + h), rack));
    THALWEG_TRY_STATUS(join(builder, host, tor, tree.host_link, 1));
  }
  for (const NodeId upper : uppers) {
    THALWEG_TRY_STATUS(join(builder, tor, upper, tree.upper_link, tree.upper_bundle));
  }
  return ok_status();
}

Status add_pod(TopologyBuilder& builder, const HtsimTree& tree, std::int64_t pod_number,
               const std::vector<NodeId>& cores) {
  RegionId pod = kWholeNetwork;
  if (tree.tiers == 3) {
    THALWEG_TRY(pod, builder.add_region(fmt::format("pod{}", pod_number), kWholeNetwork));
  }
  const std::string_view word = tree.tiers == 3 ? "agg" : "spine";
  std::vector<NodeId> uppers;
  for (std::int64_t u = 0; u < tree.uppers; ++u) {
    THALWEG_TRY(const NodeId upper,
                builder.add_switch(fmt::format("{}{}", word, pod_number * tree.uppers + u), pod));
    uppers.push_back(upper);
    for (std::int64_t c = 0; c < tree.cores_an_upper; ++c) {
      const NodeId core = cores[static_cast<std::size_t>(u + tree.uppers * c)];
      THALWEG_TRY_STATUS(join(builder, upper, core, tree.core_link, tree.core_bundle));
    }
  }
  for (std::int64_t t = 0; t < tree.tors; ++t) {
    THALWEG_TRY_STATUS(add_htsim_rack(builder, tree, pod_number * tree.tors + t, pod, uppers));
  }
  return ok_status();
}

}  // namespace

Result<Topology> build_htsim_tree(const HtsimTree& tree, std::string name) {
  const std::int64_t hosts = tree.pods * tree.tors * tree.hosts;
  const std::int64_t core_count = tree.uppers * tree.cores_an_upper;
  const std::int64_t switches = tree.pods * (tree.tors + tree.uppers) + core_count;
  if (hosts + switches > kMaxNodes) {
    return Error(fmt::format("{} hosts and {} switches are too many: at most {} nodes", hosts,
                             switches, kMaxNodes));
  }
  TopologyBuilder builder(std::move(name));
  std::vector<NodeId> cores;
  for (std::int64_t c = 0; c < core_count; ++c) {
    THALWEG_TRY(const NodeId core, builder.add_switch(fmt::format("core{}", c), kWholeNetwork));
    cores.push_back(core);
  }
  for (std::int64_t p = 0; p < tree.pods; ++p) {
    THALWEG_TRY_STATUS(add_pod(builder, tree, p, cores));
  }
  return std::move(builder).build();
}

}  // namespace thalweg::topology
