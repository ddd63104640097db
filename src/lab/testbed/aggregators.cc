#include "lab/testbed/aggregators.h"

#include <fmt/core.h>

#include <algorithm>

#include "topology/with_hosts.h"

namespace thalweg::lab {
namespace {

Status find_switches(const topology::Topology& topology, std::vector<std::string>& switches) {
  std::string all;
  std::vector<std::string> every;
  for (const topology::Node& node : topology.nodes()) {
    if (node.kind != topology::NodeKind::kSwitch) continue;
    every.push_back(node.name);
    all += node.name + ", ";
  }
  if (switches == std::vector<std::string>{"all"}) switches = every;
  for (auto name = switches.begin(); name != switches.end(); ++name) {
    if (std::ranges::find(every, *name) == every.end()) {
      return Error(fmt::format("--aggregate: '{}' is not a switch: {}or all", *name, all));
    }
    if (std::find(switches.begin(), name, *name) != name) {
      return Error(fmt::format("--aggregate: '{}' is named twice", *name));
    }
  }
  return ok_status();
}

}  // namespace

Result<topology::Topology> with_aggregators(const topology::Topology& topology,
                                            std::vector<std::string>& switches) {
  THALWEG_TRY_STATUS(find_switches(topology, switches));
  std::vector<topology::AddedHost> added;
  for (const std::string& name : switches) {
    topology::AddedHost host{
        .name = name + "-aggregator", .at = topology.find_node(name), .spec = {}};
    for (const topology::ArcId arc : topology.arcs_from(host.at)) {
      host.spec.rate += topology.arc(arc).spec.rate;
    }
    host.spec.rate = std::min(host.spec.rate, topology::kMaxRate);
    added.push_back(std::move(host));
  }
  return topology::with_hosts(topology, added);
}

}  // namespace thalweg::lab
