#include "sim/scenario/scenario.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/suggest.h"
#include "sim/scenario/scenario_reader.h"
#include "sim/tcp/transports.h"
#include "switch/queueing/entry.h"
#include "topology/format/text.h"
#include "topology/format/yaml_document.h"

namespace thalweg::sim {
namespace {

constexpr std::array<std::string_view, 3> kDisciplines{"fifo", "strict-priority", "pfabric"};
constexpr std::array<std::string_view, 3> kBalancings{"flow-hash", "per-packet", "label"};
constexpr Duration kLongest = Duration::milliseconds(3'600'000);

}  // namespace

Result<std::size_t> ScenarioReader::choice_of(const YAML::Node& node, std::string_view field,
                                              Words choices) const {
  THALWEG_TRY(const std::string text, text_of(node, field));
  const auto found = std::find(choices.begin(), choices.end(), text);
  if (found != choices.end()) return static_cast<std::size_t>(found - choices.begin());
  return error(node, fmt::format("'{}': '{}' is none of {}{}", field, text,
                                 fmt::join(choices, ", "), did_you_mean(text, choices)));
}

Result<bool> ScenarioReader::switch_of(const YAML::Node& node, std::string_view field) const {
  static constexpr std::array<std::string_view, 2> kChoices{"no", "yes"};
  THALWEG_TRY(const std::size_t choice, choice_of(node, field, kChoices));
  return choice == 1;
}

Result<Duration> ScenarioReader::time_of(const YAML::Node& node, std::string_view field) const {
  return quantity_of(node, field, parse_duration, Duration(), kLongest);
}

Result<Rank> ScenarioReader::host_of(const YAML::Node& node, std::string_view field) const {
  THALWEG_TRY(const std::string name, text_of(node, field));
  const topology::NodeId id = scenario_.topology->find_node(name);
  const Rank rank = id.valid() ? scenario_.topology->rank_of(id) : Rank();
  if (rank.valid()) return rank;
  std::vector<std::string> hosts;
  for (Rank host(0); host.value() < scenario_.topology->host_count(); ++host) {
    hosts.push_back(scenario_.topology->node(scenario_.topology->host(host)).name);
  }
  return error(node, fmt::format("'{}': '{}' is not a host of the topology{}", field, name,
                                 did_you_mean(name, hosts)));
}

Status ScenarioReader::read_topology(const YAML::Node& node) {
  THALWEG_TRY(const std::string text, text_of(node, "topology"));
  Result<topology::Topology> topology = loaders_.topology(text);
  if (!topology.ok()) return error(node, topology.error().message());
  scenario_.topology = std::make_unique<topology::Topology>(std::move(*topology));
  return ok_status();
}

Result<std::shared_ptr<const TransportFactory>> ScenarioReader::transport_of(
    const YAML::Node& node) const {
  std::string kind;
  KeyValues parameters;
  if (node.IsScalar()) {
    kind = node.Scalar();
  } else {
    if (!node.IsMap()) return error(node, "'transport' must be a name or a map with 'kind'");
    for (const auto& entry : node) {
      THALWEG_TRY(const std::string key, text_of(entry.first, "transport"));
      THALWEG_TRY(std::string value, text_of(entry.second, key));
      if (key == "kind") {
        kind = std::move(value);
      } else if (!parameters.emplace(key, std::move(value)).second) {
        return error(entry.first, fmt::format("key '{}' is given twice in 'transport'", key));
      }
    }
  }
  auto transport = make_transport(kind, parameters);
  if (!transport.ok()) return error(node, transport.error().message());
  return std::shared_ptr<const TransportFactory>(std::move(*transport));
}

// A name may contain a '*', which stands for any text.
Result<std::vector<Rank>> ScenarioReader::hosts_of(const YAML::Node& node,
                                                   std::string_view field) const {
  const topology::Topology& topology = *scenario_.topology;
  THALWEG_TRY(const std::vector<YAML::Node> items, list_of(node, field));
  std::vector<Rank> hosts;
  std::vector<bool> named(static_cast<std::size_t>(topology.host_count()));
  const auto name = [&](Rank rank) {
    if (!named[rank.index()]) hosts.push_back(rank);
    named[rank.index()] = true;
  };
  for (const YAML::Node& item : items) {
    THALWEG_TRY(const std::string text, text_of(item, field));
    const std::size_t star = text.find('*');
    if (star == std::string::npos) {
      THALWEG_TRY(const Rank rank, host_of(item, field));
      name(rank);
      continue;
    }
    const std::string_view before = std::string_view(text).substr(0, star);
    const std::string_view after = std::string_view(text).substr(star + 1);
    const std::size_t count = hosts.size();
    for (Rank rank(0); rank.value() < topology.host_count(); ++rank) {
      const std::string_view host = topology.node(topology.host(rank)).name;
      if (host.size() + 1 >= text.size() && host.starts_with(before) && host.ends_with(after)) {
        name(rank);
      }
    }
    if (hosts.size() == count) {
      return error(item,
                   fmt::format("'{}': '{}' names no further host of the topology", field, text));
    }
  }
  if (hosts.empty()) return error(node, fmt::format("'{}' names no host", field));
  return hosts;
}

Status ScenarioReader::read_network(const YAML::Node& node) {
  static constexpr std::array<std::string_view, 14> kKeys{
      "discipline",   "port_buffer",         "shared_buffer",   "mark_above",
      "mark_per",     "selective_threshold", "selective_step",  "selective_thresholds",
      "queue_limits", "host_queue",          "control_reserve", "balancing",
      "framing",      "socket_queue"};
  static constexpr std::array<std::string_view, 2> kMarkPer{"queue", "port"};
  THALWEG_TRY(const Fields fields, fields_of(node, "'network'", {}, kKeys));
  QueueOptions& queues = scenario_.network.queues;
  std::size_t discipline = 0;
  std::size_t balancing = 0;
  std::size_t mark_per = 1;
  THALWEG_TRY_STATUS(take(fields, "discipline", discipline, as_choice(kDisciplines)));
  THALWEG_TRY_STATUS(take(fields, "balancing", balancing, as_choice(kBalancings)));
  THALWEG_TRY_STATUS(take(fields, "mark_per", mark_per, as_choice(kMarkPer)));
  queues.discipline = static_cast<QueueOptions::Discipline>(discipline);
  queues.per_port_marking = mark_per == 1;
  scenario_.network.balancing = static_cast<LoadBalancing>(balancing);
  const auto buffer = as_bytes(Bytes(0), topology::kMaxBuffer);
  THALWEG_TRY_STATUS(take(fields, "port_buffer", queues.port_buffer, buffer));
  THALWEG_TRY_STATUS(take(fields, "shared_buffer", queues.shared_buffer, buffer));
  THALWEG_TRY_STATUS(take(fields, "mark_above", queues.mark_above, buffer));
  THALWEG_TRY_STATUS(take(fields, "selective_threshold", queues.selective_threshold, buffer));
  THALWEG_TRY_STATUS(take(fields, "selective_step", queues.selective_step, as_number(0, 1000)));
  THALWEG_TRY_STATUS(read_queues(fields, queues, node));
  THALWEG_TRY_STATUS(take(fields, "control_reserve", queues.control_reserve, buffer));
  THALWEG_TRY_STATUS(take(fields, "host_queue", scenario_.network.host_queue, buffer));
  THALWEG_TRY_STATUS(take(fields, "socket_queue", scenario_.network.socket_queue, buffer));
  if (scenario_.network.host_queue.count() > 0 && scenario_.network.socket_queue.count() > 0) {
    return error(node,
                 "'host_queue' limits what waits at a host's port and 'socket_queue' what one "
                 "socket has there: give one of them");
  }
  Bytes framing;
  THALWEG_TRY_STATUS(take(fields, "framing", framing, as_bytes(Bytes(0), Bytes(1000))));
  scenario_.network.framing_bytes = static_cast<std::uint32_t>(framing.count());
  return ok_status();
}

Result<NetworkOptions> ScenarioReader::network_of(const YAML::Node& section) {
  THALWEG_TRY_STATUS(read_network(section));
  return scenario_.network;
}

// Appendix B of the DLCP paper gives thresholds and limits of the data queues, one by one.
Status ScenarioReader::read_queues(const Fields& fields, QueueOptions& queues,
                                   const YAML::Node& node) const {
  const auto each = [&](const YAML::Node& list,
                        std::string_view field) -> Result<std::vector<Bytes>> {
    THALWEG_TRY(const std::vector<YAML::Node> items, list_of(list, field));
    if (items.size() != switches::kDataQueues) {
      return error(list, fmt::format("'{}' has {} values: it must have one for each of the {} data "
                                     "queues, the most urgent first",
                                     field, items.size(), switches::kDataQueues));
    }
    std::vector<Bytes> values;
    for (const YAML::Node& item : items) {
      THALWEG_TRY(const Bytes value,
                  quantity_of(item, field, parse_bytes, Bytes(1), topology::kMaxBuffer));
      values.push_back(value);
    }
    return values;
  };
  THALWEG_TRY_STATUS(take(fields, "selective_thresholds", queues.selective_thresholds, each));
  THALWEG_TRY_STATUS(take(fields, "queue_limits", queues.queue_limits, each));
  if (queues.selective_thresholds.empty() && queues.queue_limits.empty()) return ok_status();
  if (queues.discipline != QueueOptions::Discipline::kStrictPriority) {
    return error(node,
                 "'selective_thresholds' and 'queue_limits' need 'discipline: "
                 "strict-priority', which has several queues");
  }
  if (!queues.selective_thresholds.empty() && fields.contains("selective_threshold")) {
    return error(node,
                 "thresholds are given by 'selective_thresholds' or by "
                 "'selective_threshold', not by both");
  }
  if (queues.selective_thresholds.empty() || queues.queue_limits.empty()) return ok_status();
  for (std::size_t i = 0; i < switches::kDataQueues; ++i) {
    if (queues.selective_thresholds[i] <= queues.queue_limits[i]) continue;
    return error(node, fmt::format("queue {}: 'selective_thresholds' has {}, above its {} in "
                                   "'queue_limits'",
                                   i + 1, to_string(queues.selective_thresholds[i]),
                                   to_string(queues.queue_limits[i])));
  }
  return ok_status();
}

Status ScenarioReader::read_connections(const YAML::Node& node) {
  static constexpr std::array<std::string_view, 4> kKeys{"forward", "at_once", "per_worker",
                                                         "warm"};
  static constexpr std::array<std::string_view, 2> kForward{"chunks", "packets"};
  THALWEG_TRY(const Fields fields, fields_of(node, "'connections'", {}, kKeys));
  std::size_t forward = 0;
  THALWEG_TRY_STATUS(take(fields, "forward", forward, as_choice(kForward)));
  scenario_.in_pieces = forward == 1;
  for (const char* const field : {"at_once", "per_worker", "warm"}) {
    if (!scenario_.in_pieces || !fields.contains(field)) continue;
    return error(node, fmt::format("'{}' is for 'forward: chunks': packets of messages between two "
                                   "workers share a stream",
                                   field));
  }
  std::int64_t at_once = scenario_.most_at_once;
  THALWEG_TRY_STATUS(take(fields, "at_once", at_once, as_whole(0, 1'000'000)));
  scenario_.most_at_once = static_cast<int>(at_once);
  std::int64_t per_worker = scenario_.most_per_worker;
  THALWEG_TRY_STATUS(take(fields, "per_worker", per_worker, as_whole(0, 1'000'000)));
  scenario_.most_per_worker = static_cast<int>(per_worker);
  return take(fields, "warm", scenario_.warm, as_switch());
}

Result<Scenario> ScenarioReader::read(const YAML::Node& root) {
  static constexpr std::array<std::string_view, 2> kRequired{"topology", "transport"};
  static constexpr std::array<std::string_view, 11> kOptional{
      "name", "network", "aggregation", "connections", "seed", "until",
      "jobs", "flows",   "background",  "faults",      "sweep"};
  THALWEG_TRY(const Fields fields, fields_of(root, "the scenario", kRequired, kOptional));
  const auto section = [&](std::string_view key) {
    const auto found = fields.find(key);
    return found == fields.end() ? YAML::Node() : found->second;
  };
  THALWEG_TRY_STATUS(take(fields, "name", scenario_.name, as_text()));
  THALWEG_TRY_STATUS(read_topology(section("topology")));
  THALWEG_TRY(scenario_.transport, transport_of(section("transport")));
  if (fields.contains("network")) THALWEG_TRY_STATUS(read_network(section("network")));
  if (fields.contains("aggregation")) THALWEG_TRY_STATUS(read_aggregation(section("aggregation")));
  if (fields.contains("connections")) THALWEG_TRY_STATUS(read_connections(section("connections")));
  std::int64_t seed = 1;
  THALWEG_TRY_STATUS(
      take(fields, "seed", seed, as_whole(0, std::numeric_limits<std::int64_t>::max())));
  scenario_.network.seed = static_cast<std::uint64_t>(seed);
  THALWEG_TRY_STATUS(take(fields, "until", scenario_.until, as_time()));
  THALWEG_TRY_STATUS(read_jobs(section("jobs")));
  THALWEG_TRY_STATUS(read_flows(section("flows")));
  THALWEG_TRY_STATUS(read_background(section("background")));
  THALWEG_TRY_STATUS(read_faults(section("faults")));
  THALWEG_TRY(scenario_.sweep, axes_from_node(section("sweep"), name()));
  if (scenario_.jobs.empty() && scenario_.flows.empty() && scenario_.background.empty()) {
    return error(root, "the scenario has neither 'jobs' nor 'flows' nor 'background'");
  }
  return std::move(scenario_);
}

Result<NetworkOptions> network_options_from_yaml(std::string_view text, std::string_view source) {
  THALWEG_TRY_STATUS(topology::check_text(text, source));
  THALWEG_TRY(const YAML::Node document, topology::load_yaml_document(text, source));
  const ScenarioLoaders no_files;
  return ScenarioReader(source, no_files).network_of(document);
}

Result<Scenario> scenario_from_yaml(std::string_view text, std::string_view source,
                                    const ScenarioLoaders& loaders, const Settings& settings) {
  THALWEG_TRY_STATUS(topology::check_text(text, source));
  THALWEG_TRY(YAML::Node document, topology::load_yaml_document(text, source));
  return scenario_from_node(std::move(document), source, loaders, settings);
}

Result<Scenario> scenario_from_node(YAML::Node root, std::string_view source,
                                    const ScenarioLoaders& loaders, const Settings& settings) {
  const auto read = [&]() -> Result<Scenario> {
    THALWEG_TRY_STATUS(apply_settings(root, source, settings));
    return ScenarioReader(source, loaders).read(root);
  };
  Result<Scenario> scenario = read();
  if (!scenario.ok() && !settings.empty()) {
    return scenario.error().within("with " + to_string(settings));
  }
  return scenario;
}

}  // namespace thalweg::sim
