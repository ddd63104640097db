#include <fmt/core.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>

#include "sim/scenario/scenario_reader.h"

namespace thalweg::sim {
namespace {

constexpr double kMostPackets = 1e12;

}  // namespace

// [a, b] is the first link between the two nodes.
Result<topology::LinkId> ScenarioReader::link_of(const YAML::Node& node) const {
  if (!node.IsSequence() || node.size() != 2) {
    return error(node, "'link' must be a list of two node names");
  }
  std::array<topology::NodeId, 2> ends;
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
      return topology::LinkId(static_cast<std::int32_t>(l));
    }
  }
  return error(node, "'link': no link joins these two nodes");
}

// Pauses `hosts` hosts at a time, and others after every `every`.
Result<RandomPauseFault> ScenarioReader::read_random_pause(const YAML::Node& node) const {
  static constexpr std::array<std::string_view, 2> kRequired{"hosts", "every"};
  THALWEG_TRY(const Fields fields, fields_of(node, "'random_pause'", kRequired, {}));
  THALWEG_TRY(const std::int64_t hosts,
              whole_of(fields.find("hosts")->second, "hosts", 0, scenario_.topology->host_count()));
  THALWEG_TRY(const Duration every,
              quantity_of(fields.find("every")->second, "every", parse_duration,
                          Duration::microseconds(1), Duration::milliseconds(3'600'000)));
  return RandomPauseFault{.hosts = static_cast<int>(hosts), .every = every};
}

// The kind of a fault is the key beside `at` and `link`: loss, burst, up, rate, pause, resume,
// restart or random_pause.
Result<ScenarioFault> ScenarioReader::read_fault(const YAML::Node& node) const {
  static constexpr std::array<std::string_view, 1> kRequired{"at"};
  static constexpr std::array<std::string_view, 9> kOptional{
      "link", "loss", "burst", "up", "rate", "pause", "resume", "restart", "random_pause"};
  THALWEG_TRY(const Fields fields, fields_of(node, "a fault", kRequired, kOptional));
  ScenarioFault fault;
  THALWEG_TRY(fault.at, time_of(fields.find("at")->second, "at"));
  const bool of_link = fields.contains("link");
  if (fields.size() != (of_link ? 3U : 2U)) {
    return error(node,
                 "a fault is 'at' with 'link' and one of loss, burst, up, rate; or 'at' with "
                 "one of pause, resume, restart, random_pause");
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
    const topology::NodeId id = scenario_.topology->find_node(name);
    if (!id.valid() || scenario_.topology->node(id).kind != topology::NodeKind::kSwitch) {
      return error(place->second,
                   fmt::format("'restart': '{}' is not a switch of the topology", name));
    }
    fault.what = RestartFault{id};
    return fault;
  }
  if (const auto random = fields.find("random_pause"); random != fields.end() && !of_link) {
    THALWEG_TRY(fault.what, read_random_pause(random->second));
    return fault;
  }
  if (!of_link) return error(node, "loss, burst, up and rate need a 'link'");
  THALWEG_TRY(const topology::LinkId link, link_of(fields.find("link")->second));
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
    return error(node, "pause, resume, restart and random_pause take no 'link'");
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

}  // namespace thalweg::sim
