// A scenario: a network, its transport and queues, the work on it and its faults, in one file
// (docs/scenario-format.md). Reading it needs the topology and the models that it names; the caller
// gives the loaders that find them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sim/core/network.h"
#include "sim/hosts/connections.h"
#include "sim/scenario/settings.h"
#include "sim/scenario/sweep.h"
#include "sim/workload/background.h"
#include "sim/workload/model.h"
#include "sim/workload/training.h"

namespace thalweg::sim {

inline constexpr std::size_t kMaxScenarioFlows = 1'000'000;
inline constexpr std::size_t kMaxScenarioJobs = 1'000;
inline constexpr std::size_t kMaxScenarioBackgrounds = 1'000;
inline constexpr std::size_t kMaxScenarioFaults = 100'000;
inline constexpr int kMaxScenarioIterations = 1'000'000;

struct ScenarioJob {
  std::string name;
  ModelTable model;
  TrainingOptions training;
  std::vector<Rank> hosts;                             // worker i runs on hosts[i]
  std::shared_ptr<const topology::Topology> topology;  // the network with only the job's hosts
  // The scenario's transport, or one of the job's own.
  std::shared_ptr<const TransportFactory> transport;
  // The transport of groups that switches sum; null if the strategy has none.
  std::shared_ptr<const TransportFactory> group_transport = {};
  bool background = false;  // runs as long as other jobs and flows do
  // Used where the transport aggregates in switches.
  std::vector<Rank> servers = {};
  std::uint32_t slot_limit = 0;
};

struct ScenarioBackground {
  std::string name;
  BackgroundOptions options;
  std::shared_ptr<const TransportFactory> transport;
};

struct ScenarioFlow {
  Rank source;
  Rank target;
  Bytes size;
  Duration at;
  std::int32_t path = -1;  // see FlowSpec
};

// A change to a part of the network.
struct LossFault {
  topology::LinkId link;  // affects both directions
  double probability = 0;
};
struct BurstFault {
  topology::LinkId link;
  double good_packets = 0;
  double bad_packets = 0;
};
struct LinkFault {
  topology::LinkId link;
  bool up = false;
};
struct RateFault {
  topology::LinkId link;
  double factor = 1;
};
struct PauseFault {
  Rank host;
  bool paused = true;
};
struct RestartFault {
  topology::NodeId node;
};
struct RandomPauseFault {
  int hosts = 0;  // how many are paused at a time; others are chosen after every `every`
  Duration every;
};
struct ScenarioFault {
  Duration at;
  std::variant<LossFault, BurstFault, LinkFault, RateFault, PauseFault, RestartFault,
               RandomPauseFault>
      what;
};

struct Scenario {
  std::string name;
  std::shared_ptr<const topology::Topology> topology;
  std::shared_ptr<const TransportFactory> transport;
  NetworkOptions network;
  // How jobs use connections; single flows always start cold.
  bool in_pieces = false;
  int most_at_once = 1;
  int most_per_worker = 0;
  bool warm = true;
  Duration until = Duration::milliseconds(60'000);
  std::vector<ScenarioJob> jobs;
  std::vector<ScenarioFlow> flows;
  std::vector<ScenarioBackground> background;
  std::vector<ScenarioFault> faults;
  std::vector<Axis> sweep;
};

struct ScenarioLoaders {
  std::function<Result<topology::Topology>(const std::string&)> topology;
  std::function<Result<ModelTable>(const std::string&)> model;
};

// Reads the section 'network' of a scenario alone.
Result<NetworkOptions> network_options_from_yaml(std::string_view text, std::string_view source);

// An error names the line, its text and what is allowed there, and the settings if there are any.
Result<Scenario> scenario_from_yaml(std::string_view text, std::string_view source,
                                    const ScenarioLoaders& loaders, const Settings& settings = {});
// The same, from a tree that is parsed already; the settings change the tree.
Result<Scenario> scenario_from_node(YAML::Node root, std::string_view source,
                                    const ScenarioLoaders& loaders, const Settings& settings = {});

}  // namespace thalweg::sim
