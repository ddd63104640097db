#include "cli/testbed/aggregators.h"

#include <fmt/format.h>

#include <algorithm>

#include "topology/with_hosts.h"

namespace thalweg {
namespace {

Status find_switches(const Topology& topology, std::vector<std::string>& switches) {
  std::string all;
  std::vector<std::string> every;
  for (const Node& node : topology.nodes()) {
    if (node.kind != NodeKind::kSwitch) continue;
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

Result<Topology> with_aggregators(const Topology& topology, std::vector<std::string>& switches) {
  THALWEG_TRY_STATUS(find_switches(topology, switches));
  std::vector<AddedHost> added;
  for (const std::string& name : switches) {
    AddedHost host{.name = name + "-aggregator", .at = topology.find_node(name), .spec = {}};
    for (const ArcId arc : topology.arcs_from(host.at)) {
      host.spec.rate += topology.arc(arc).spec.rate;
    }
    host.spec.rate = std::min(host.spec.rate, kMaxRate);
    added.push_back(std::move(host));
  }
  return with_hosts(topology, added);
}

}  // namespace thalweg
