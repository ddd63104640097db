#include <fmt/core.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>

#include "sim/scenario/scenario_reader.h"
#include "topology/aggregation_groups.h"
#include "wire/atp_packet.h"

namespace thalweg::sim {
namespace {

// The switches that hosts are attached to.
std::vector<topology::NodeId> edge_switches(const topology::Topology& topology) {
  std::vector<topology::NodeId> edges;
  for (Rank host(0); host.value() < topology.host_count(); ++host) {
    const auto edge = topology::edge_switch_of(topology, host);
    if (edge.ok() && std::ranges::find(edges, *edge) == edges.end()) edges.push_back(*edge);
  }
  return edges;
}

}  // namespace

Status ScenarioReader::read_aggregation(const YAML::Node& node) {
  static constexpr std::array<std::string_view, 1> kRequired{"slots"};
  static constexpr std::array<std::string_view, 5> kOptional{"elements", "switches", "lifetime",
                                                             "hash", "second_level_resends"};
  static constexpr std::array<std::string_view, 2> kHashes{"job", "sequence"};
  static constexpr std::array<std::string_view, 2> kResends{"take", "pass"};
  const topology::Topology& topology = *scenario_.topology;
  AggregationOptions& options = scenario_.network.aggregation;
  THALWEG_TRY(const Fields fields, fields_of(node, "'aggregation'", kRequired, kOptional));
  THALWEG_TRY(const std::int64_t slots,
              whole_of(fields.find("slots")->second, "slots", 1, kMaxSlots));
  options.slots = static_cast<std::uint32_t>(slots);
  std::int64_t elements = options.elements;
  THALWEG_TRY_STATUS(take(fields, "elements", elements,
                          as_whole(1, static_cast<std::int64_t>(wire::kAtpMostElements))));
  options.elements = static_cast<std::uint32_t>(elements);
  THALWEG_TRY_STATUS(take(fields, "lifetime", options.lifetime, as_time()));
  if (options.lifetime == Duration()) {
    return error(fields.find("lifetime")->second, "'lifetime' must be above 0");
  }
  std::size_t hash = 0;
  std::size_t resends = 0;
  THALWEG_TRY_STATUS(take(fields, "hash", hash, as_choice(kHashes)));
  THALWEG_TRY_STATUS(take(fields, "second_level_resends", resends, as_choice(kResends)));
  options.hash_sequences = hash == 1;
  options.pass_second_level_resends = resends == 1;
  options.switches = edge_switches(topology);
  const auto given = fields.find("switches");
  if (given == fields.end()) return ok_status();
  options.switches.clear();
  THALWEG_TRY(const std::vector<YAML::Node> items, list_of(given->second, "switches"));
  for (const YAML::Node& item : items) {
    THALWEG_TRY(const std::string name, text_of(item, "switches"));
    const topology::NodeId id = topology.find_node(name);
    if (!id.valid() || topology.node(id).kind != topology::NodeKind::kSwitch) {
      return error(item, fmt::format("'switches': '{}' is not a switch of the topology", name));
    }
    if (std::ranges::find(options.switches, id) != options.switches.end()) {
      return error(item, fmt::format("'switches': '{}' is named twice", name));
    }
    options.switches.push_back(id);
  }
  return ok_status();
}

}  // namespace thalweg::sim
