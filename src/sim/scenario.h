// A scenario: a network, its transport and queues, what runs on it and what goes wrong, as one file
// (docs/scenario-format.md). Reading it needs the topology and the models it names; whoever reads
// it says how those are found.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sim/background.h"
#include "sim/connections.h"
#include "sim/model.h"
#include "sim/network.h"
#include "sim/settings.h"
#include "sim/sweep.h"
#include "sim/training.h"

namespace thalweg {

inline constexpr std::size_t kMaxScenarioFlows = 1'000'000;
inline constexpr std::size_t kMaxScenarioJobs = 1'000;
inline constexpr std::size_t kMaxScenarioBackgrounds = 1'000;
inline constexpr std::size_t kMaxScenarioFaults = 100'000;
inline constexpr int kMaxScenarioIterations = 1'000'000;

struct ScenarioJob {
  std::string name;
  ModelTable model;
  TrainingOptions training;
  std::vector<Rank> hosts;                            // worker i runs on hosts[i]
  std::shared_ptr<const Topology> topology;           // with only these
  std::shared_ptr<const TransportFactory> transport;  // the scenario's, or its own
  // Of groups that switches sum; null: the strategy has none.
  std::shared_ptr<const TransportFactory> group_transport = {};
  bool background = false;  // goes on as long as others do
  // Where the transport aggregates in switches.
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

// What happens to a part of the network, and when.
struct LossFault {
  LinkId link;  // both directions
  double probability = 0;
};
struct BurstFault {
  LinkId link;
  double good_packets = 0;
  double bad_packets = 0;
};
struct LinkFault {
  LinkId link;
  bool up = false;
};
struct RateFault {
  LinkId link;
  double factor = 1;
};
struct PauseFault {
  Rank host;
  bool paused = true;
};
struct RestartFault {
  NodeId node;
};
struct RandomPauseFault {
  int hosts = 0;  // paused at a time, chosen anew after every `every`
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
  std::shared_ptr<const Topology> topology;
  std::shared_ptr<const TransportFactory> transport;
  NetworkOptions network;
  // How jobs use connections; flows of their own always start cold.
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
  std::function<Result<Topology>(const std::string&)> topology;
  std::function<Result<ModelTable>(const std::string&)> model;
};

// The section 'network' of a scenario, by itself.
Result<NetworkOptions> network_options_from_yaml(std::string_view text, std::string_view source);

// Every error names the line, what stands there and what is allowed, and the settings if there are
// any.
Result<Scenario> scenario_from_yaml(std::string_view text, std::string_view source,
                                    const ScenarioLoaders& loaders, const Settings& settings = {});
// The same from a tree that is parsed already, which the settings change.
Result<Scenario> scenario_from_node(YAML::Node root, std::string_view source,
                                    const ScenarioLoaders& loaders, const Settings& settings = {});

}  // namespace thalweg
