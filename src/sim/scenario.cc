#include "sim/scenario.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "plan/scheme.h"
#include "sim/tcp/transports.h"
#include "topology/text.h"
#include "topology/yaml_document.h"
#include "topology/yaml_source.h"

namespace thalweg {
namespace {

using Words = std::span<const std::string_view>;

constexpr std::array<std::string_view, 3> kDisciplines{"fifo", "strict-priority", "pfabric"};
constexpr std::array<std::string_view, 3> kBalancings{"flow-hash", "per-packet", "label"};
constexpr std::array<std::string_view, 3> kOverlaps{"none", "wait-free", "bytescheduler"};
constexpr Duration kLongest = Duration::milliseconds(3'600'000);
constexpr double kMostPackets = 1e12;

class ScenarioReader : private YamlSource {
 public:
  ScenarioReader(std::string_view source, const ScenarioLoaders& loaders)
      : YamlSource(source), loaders_(loaders) {}

  Result<Scenario> read(const YAML::Node& root);

 private:
  // The place of a word in a list of choices.
  Result<std::size_t> choice_of(const YAML::Node& node, std::string_view field,
                                Words choices) const;
  Result<bool> switch_of(const YAML::Node& node, std::string_view field) const;
  Result<Duration> time_of(const YAML::Node& node, std::string_view field) const;
  Result<Rank> host_of(const YAML::Node& node, std::string_view field) const;
  Result<LinkId> link_of(const YAML::Node& node) const;

  Status read_topology(const YAML::Node& node);
  Status read_transport(const YAML::Node& node);
  Status read_network(const YAML::Node& node);
  Status read_jobs(const YAML::Node& node);
  Result<ScenarioJob> read_job(const YAML::Node& node) const;
  Status read_slowdown(const YAML::Node& node, TrainingOptions& options) const;
  Status read_flows(const YAML::Node& node);
  Status read_faults(const YAML::Node& node);
  Result<ScenarioFault> read_fault(const YAML::Node& node) const;

  // Reads a field into `out` if it is there.
  template <class T, class Read>
  Status take(const Fields& fields, std::string_view field, T& out, Read read) const {
    const auto found = fields.find(field);
    if (found == fields.end()) return ok_status();
    THALWEG_TRY(out, read(found->second, field));
    return ok_status();
  }
  auto bytes_up_to(Bytes most) const {
    return [this, most](const YAML::Node& node, std::string_view field) {
      return quantity_of(node, field, parse_bytes, Bytes(0), most);
    };
  }

  const ScenarioLoaders& loaders_;
  Scenario scenario_;
};

Result<std::size_t> ScenarioReader::choice_of(const YAML::Node& node, std::string_view field,
                                              Words choices) const {
  THALWEG_TRY(const std::string text, text_of(node, field));
  const auto found = std::find(choices.begin(), choices.end(), text);
  if (found != choices.end()) return static_cast<std::size_t>(found - choices.begin());
  return error(node,
               fmt::format("'{}': '{}' is none of {}", field, text, fmt::join(choices, ", ")));
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
  const NodeId id = scenario_.topology->find_node(name);
  const Rank rank = id.valid() ? scenario_.topology->rank_of(id) : Rank();
  if (rank.valid()) return rank;
  return error(node, fmt::format("'{}': '{}' is not a host of the topology", field, name));
}

// [a, b]: the first link between the two nodes.
Result<LinkId> ScenarioReader::link_of(const YAML::Node& node) const {
  if (!node.IsSequence() || node.size() != 2) {
    return error(node, "'link' must be a list of two node names");
  }
  std::array<NodeId, 2> ends;
  for (std::size_t i = 0; i < 2; ++i) {
    THALWEG_TRY(const std::string name, text_of(node[i], "link"));
    ends.at(i) = scenario_.topology->find_node(name);
    if (!ends.at(i).valid()) {
      return error(node, fmt::format("'link': '{}' is not a node of the topology", name));
    }
  }
  const auto links = scenario_.topology->links();
  for (std::size_t l = 0; l < links.size(); ++l) {
    if (std::minmax(links[l].a, links[l].b) == std::minmax(ends[0], ends[1])) {
      return LinkId(static_cast<std::int32_t>(l));
    }
  }
  return error(node, "'link': no link joins these two nodes");
}

Status ScenarioReader::read_topology(const YAML::Node& node) {
  THALWEG_TRY(const std::string text, text_of(node, "topology"));
  Result<Topology> topology = loaders_.topology(text);
  if (!topology.ok()) return error(node, topology.error().message());
  scenario_.topology = std::make_unique<Topology>(std::move(*topology));
  return ok_status();
}

// A name, or a map with the name as `kind` and its parameters.
Status ScenarioReader::read_transport(const YAML::Node& node) {
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
  scenario_.transport = std::move(*transport);
  return ok_status();
}

Status ScenarioReader::read_network(const YAML::Node& node) {
  static constexpr std::array<std::string_view, 9> kKeys{
      "discipline",          "port_buffer",    "shared_buffer", "mark_above", "mark_per",
      "selective_threshold", "selective_step", "balancing",     "framing"};
  static constexpr std::array<std::string_view, 2> kMarkPer{"queue", "port"};
  THALWEG_TRY(const Fields fields, fields_of(node, "'network'", {}, kKeys));
  NetworkOptions& network = scenario_.network;
  const auto choose = [&](Words choices) {
    return [this, choices](const YAML::Node& n, std::string_view f) {
      return choice_of(n, f, choices);
    };
  };
  std::size_t discipline = 0;
  std::size_t balancing = 0;
  std::size_t mark_per = 1;
  THALWEG_TRY_STATUS(take(fields, "discipline", discipline, choose(kDisciplines)));
  THALWEG_TRY_STATUS(take(fields, "balancing", balancing, choose(kBalancings)));
  THALWEG_TRY_STATUS(take(fields, "mark_per", mark_per, choose(kMarkPer)));
  network.queues.discipline = static_cast<QueueOptions::Discipline>(discipline);
  network.balancing = static_cast<LoadBalancing>(balancing);
  network.queues.per_port_marking = mark_per == 1;
  THALWEG_TRY_STATUS(
      take(fields, "port_buffer", network.queues.port_buffer, bytes_up_to(kMaxBuffer)));
  THALWEG_TRY_STATUS(
      take(fields, "shared_buffer", network.queues.shared_buffer, bytes_up_to(kMaxBuffer)));
  THALWEG_TRY_STATUS(
      take(fields, "mark_above", network.queues.mark_above, bytes_up_to(kMaxBuffer)));
  THALWEG_TRY_STATUS(take(fields, "selective_threshold", network.queues.selective_threshold,
                          bytes_up_to(kMaxBuffer)));
  THALWEG_TRY_STATUS(
      take(fields, "selective_step", network.queues.selective_step,
           [&](const YAML::Node& n, std::string_view f) { return number_of(n, f, 0, 1000); }));
  Bytes framing;
  THALWEG_TRY_STATUS(take(fields, "framing", framing, bytes_up_to(Bytes(1000))));
  network.framing_bytes = static_cast<std::uint32_t>(framing.count());
  return ok_status();
}

Status ScenarioReader::read_slowdown(const YAML::Node& node, TrainingOptions& options) const {
  if (!node.IsMap()) return error(node, "'slowdown' must be a map from host to factor");
  options.slowdown.assign(static_cast<std::size_t>(scenario_.topology->host_count()), 1);
  for (const auto& entry : node) {
    THALWEG_TRY(const Rank host, host_of(entry.first, "slowdown"));
    THALWEG_TRY(options.slowdown[host.index()], number_of(entry.second, "slowdown", 0.001, 1000));
  }
  return ok_status();
}

Result<ScenarioJob> ScenarioReader::read_job(const YAML::Node& node) const {
  static constexpr std::array<std::string_view, 2> kRequired{"model", "scheme"};
  static constexpr std::array<std::string_view, 7> kOptional{
      "name", "overlap", "partition", "iterations", "start", "device_scale", "slowdown"};
  THALWEG_TRY(const Fields fields, fields_of(node, "a job", kRequired, kOptional));
  ScenarioJob job;
  const YAML::Node& model = fields.find("model")->second;
  THALWEG_TRY(const std::string model_name, text_of(model, "model"));
  Result<ModelTable> table = loaders_.model(model_name);
  if (!table.ok()) return error(model, table.error().message());
  job.model = std::move(*table);
  if (const auto scale = fields.find("device_scale"); scale != fields.end()) {
    THALWEG_TRY(const double factor,
                number_of(scale->second, "device_scale", kLeastDeviceScale, kMostDeviceScale));
    Result<ModelTable> slower = slowed_down(std::move(job.model), factor);
    if (!slower.ok()) return error(scale->second, slower.error().message());
    job.model = std::move(*slower);
  }
  const YAML::Node& scheme = fields.find("scheme")->second;
  THALWEG_TRY(job.training.scheme, text_of(scheme, "scheme"));
  const auto plan =
      make_plan(job.training.scheme, {.topology = *scenario_.topology, .elements = 1});
  if (!plan.ok()) return error(scheme, plan.error().message());
  job.name = job.model.name;
  THALWEG_TRY_STATUS(take(fields, "name", job.name,
                          [&](const YAML::Node& n, std::string_view f) { return text_of(n, f); }));
  std::size_t overlap = 1;
  THALWEG_TRY_STATUS(take(fields, "overlap", overlap, [&](const YAML::Node& n, std::string_view f) {
    return choice_of(n, f, kOverlaps);
  }));
  job.training.overlap = static_cast<Overlap>(overlap);
  THALWEG_TRY_STATUS(take(fields, "partition", job.training.partition,
                          [&](const YAML::Node& n, std::string_view f) {
                            return quantity_of(n, f, parse_bytes, Bytes(1), kMaxBuffer);
                          }));
  std::int64_t iterations = 1;
  THALWEG_TRY_STATUS(
      take(fields, "iterations", iterations, [&](const YAML::Node& n, std::string_view f) {
        return whole_of(n, f, 1, kMaxScenarioIterations);
      }));
  job.training.iterations = static_cast<int>(iterations);
  THALWEG_TRY_STATUS(take(fields, "start", job.training.start,
                          [&](const YAML::Node& n, std::string_view f) { return time_of(n, f); }));
  if (const auto slowdown = fields.find("slowdown"); slowdown != fields.end()) {
    THALWEG_TRY_STATUS(read_slowdown(slowdown->second, job.training));
  }
  return job;
}

Status ScenarioReader::read_jobs(const YAML::Node& node) {
  THALWEG_TRY(const std::vector<YAML::Node> items, list_of(node, "jobs"));
  if (items.size() > kMaxScenarioJobs) {
    return error(node, fmt::format("'jobs' has more than {} entries", kMaxScenarioJobs));
  }
  for (const YAML::Node& item : items) {
    THALWEG_TRY(ScenarioJob job, read_job(item));
    scenario_.jobs.push_back(std::move(job));
  }
  return ok_status();
}

Status ScenarioReader::read_flows(const YAML::Node& node) {
  static constexpr std::array<std::string_view, 3> kRequired{"from", "to", "size"};
  static constexpr std::array<std::string_view, 1> kOptional{"at"};
  THALWEG_TRY(const std::vector<YAML::Node> items, list_of(node, "flows"));
  if (items.size() > kMaxScenarioFlows) {
    return error(node, fmt::format("'flows' has more than {} entries", kMaxScenarioFlows));
  }
  for (const YAML::Node& item : items) {
    THALWEG_TRY(const Fields fields, fields_of(item, "a flow", kRequired, kOptional));
    ScenarioFlow flow;
    THALWEG_TRY(flow.source, host_of(fields.find("from")->second, "from"));
    THALWEG_TRY(flow.target, host_of(fields.find("to")->second, "to"));
    if (flow.source == flow.target) return error(item, "a flow goes from a host to itself");
    THALWEG_TRY(flow.size, quantity_of(fields.find("size")->second, "size", parse_bytes, Bytes(1),
                                       Bytes(std::int64_t{1} << 40)));
    THALWEG_TRY_STATUS(take(fields, "at", flow.at, [&](const YAML::Node& n, std::string_view f) {
      return time_of(n, f);
    }));
    scenario_.flows.push_back(flow);
  }
  return ok_status();
}

// A fault is said by which key stands beside `at` and `link`: loss, burst, up, rate, pause, resume
// or restart.
Result<ScenarioFault> ScenarioReader::read_fault(const YAML::Node& node) const {
  static constexpr std::array<std::string_view, 1> kRequired{"at"};
  static constexpr std::array<std::string_view, 8> kOptional{"link", "loss",  "burst",  "up",
                                                             "rate", "pause", "resume", "restart"};
  THALWEG_TRY(const Fields fields, fields_of(node, "a fault", kRequired, kOptional));
  ScenarioFault fault;
  THALWEG_TRY(fault.at, time_of(fields.find("at")->second, "at"));
  const bool of_link = fields.contains("link");
  if (fields.size() != (of_link ? 3U : 2U)) {
    return error(node,
                 "a fault is 'at' with 'link' and one of loss, burst, up, rate; or 'at' with "
                 "one of pause, resume, restart");
  }
  if (const auto host = fields.find("pause"); host != fields.end() && !of_link) {
    THALWEG_TRY(const Rank rank, host_of(host->second, "pause"));
    fault.what = PauseFault{rank, true};
    return fault;
  }
  if (const auto host = fields.find("resume"); host != fields.end() && !of_link) {
    THALWEG_TRY(const Rank rank, host_of(host->second, "resume"));
    fault.what = PauseFault{rank, false};
    return fault;
  }
  if (const auto place = fields.find("restart"); place != fields.end() && !of_link) {
    THALWEG_TRY(const std::string name, text_of(place->second, "restart"));
    const NodeId id = scenario_.topology->find_node(name);
    if (!id.valid() || scenario_.topology->node(id).kind != NodeKind::kSwitch) {
      return error(place->second,
                   fmt::format("'restart': '{}' is not a switch of the topology", name));
    }
    fault.what = RestartFault{id};
    return fault;
  }
  if (!of_link) return error(node, "loss, burst, up and rate need a 'link'");
  THALWEG_TRY(const LinkId link, link_of(fields.find("link")->second));
  if (const auto loss = fields.find("loss"); loss != fields.end()) {
    THALWEG_TRY(const double probability, number_of(loss->second, "loss", 0, 1));
    fault.what = LossFault{link, probability};
  } else if (const auto burst = fields.find("burst"); burst != fields.end()) {
    if (!burst->second.IsSequence() || burst->second.size() != 2) {
      return error(burst->second, "'burst' must be [packets between bursts, packets lost in one]");
    }
    THALWEG_TRY(const double good, number_of(burst->second[0], "burst", 1, kMostPackets));
    THALWEG_TRY(const double bad, number_of(burst->second[1], "burst", 1, kMostPackets));
    fault.what = BurstFault{link, good, bad};
  } else if (const auto up = fields.find("up"); up != fields.end()) {
    THALWEG_TRY(const bool is_up, switch_of(up->second, "up"));
    fault.what = LinkFault{link, is_up};
  } else if (const auto rate = fields.find("rate"); rate != fields.end()) {
    THALWEG_TRY(const double factor, number_of(rate->second, "rate", 0.001, 1000));
    fault.what = RateFault{link, factor};
  } else {
    return error(node, "pause, resume and restart take no 'link'");
  }
  return fault;
}

Status ScenarioReader::read_faults(const YAML::Node& node) {
  THALWEG_TRY(const std::vector<YAML::Node> items, list_of(node, "faults"));
  if (items.size() > kMaxScenarioFaults) {
    return error(node, fmt::format("'faults' has more than {} entries", kMaxScenarioFaults));
  }
  for (const YAML::Node& item : items) {
    THALWEG_TRY(const ScenarioFault fault, read_fault(item));
    scenario_.faults.push_back(fault);
  }
  return ok_status();
}

Result<Scenario> ScenarioReader::read(const YAML::Node& root) {
  static constexpr std::array<std::string_view, 2> kRequired{"topology", "transport"};
  static constexpr std::array<std::string_view, 8> kOptional{
      "name", "network", "connections", "seed", "until", "jobs", "flows", "faults"};
  static constexpr std::array<std::string_view, 2> kConnectionKeys{"at_once", "warm"};
  THALWEG_TRY(const Fields fields, fields_of(root, "the scenario", kRequired, kOptional));
  THALWEG_TRY_STATUS(take(fields, "name", scenario_.name,
                          [&](const YAML::Node& n, std::string_view f) { return text_of(n, f); }));
  THALWEG_TRY_STATUS(read_topology(fields.find("topology")->second));
  THALWEG_TRY_STATUS(read_transport(fields.find("transport")->second));
  const auto section = [&](std::string_view key) {
    const auto found = fields.find(key);
    return found == fields.end() ? YAML::Node() : found->second;
  };
  if (fields.contains("network")) THALWEG_TRY_STATUS(read_network(section("network")));
  if (fields.contains("connections")) {
    THALWEG_TRY(const Fields given,
                fields_of(section("connections"), "'connections'", {}, kConnectionKeys));
    std::int64_t at_once = scenario_.most_at_once;
    THALWEG_TRY_STATUS(take(
        given, "at_once", at_once,
        [&](const YAML::Node& n, std::string_view f) { return whole_of(n, f, 0, 1'000'000); }));
    scenario_.most_at_once = static_cast<int>(at_once);
    THALWEG_TRY_STATUS(
        take(given, "warm", scenario_.warm,
             [&](const YAML::Node& n, std::string_view f) { return switch_of(n, f); }));
  }
  std::int64_t seed = 1;
  THALWEG_TRY_STATUS(take(fields, "seed", seed, [&](const YAML::Node& n, std::string_view f) {
    return whole_of(n, f, 0, std::numeric_limits<std::int64_t>::max());
  }));
  scenario_.network.seed = static_cast<std::uint64_t>(seed);
  THALWEG_TRY_STATUS(take(fields, "until", scenario_.until,
                          [&](const YAML::Node& n, std::string_view f) { return time_of(n, f); }));
  THALWEG_TRY_STATUS(read_jobs(section("jobs")));
  THALWEG_TRY_STATUS(read_flows(section("flows")));
  THALWEG_TRY_STATUS(read_faults(section("faults")));
  if (scenario_.jobs.empty() && scenario_.flows.empty()) {
    return error(root, "the scenario has neither 'jobs' nor 'flows'");
  }
  return std::move(scenario_);
}

}  // namespace

Result<Scenario> scenario_from_yaml(std::string_view text, std::string_view source,
                                    const ScenarioLoaders& loaders) {
  THALWEG_TRY_STATUS(check_text(text, source));
  THALWEG_TRY(const YAML::Node document, load_yaml_document(text, source));
  return ScenarioReader(source, loaders).read(document);
}

}  // namespace thalweg
