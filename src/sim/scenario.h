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

#include "sim/connections.h"
#include "sim/model.h"
#include "sim/network.h"
#include "sim/training.h"

namespace thalweg {

inline constexpr std::size_t kMaxScenarioFlows = 1'000'000;
inline constexpr std::size_t kMaxScenarioJobs = 1'000;
inline constexpr std::size_t kMaxScenarioFaults = 100'000;
inline constexpr int kMaxScenarioIterations = 1'000'000;

struct ScenarioJob {
  std::string name;
  ModelTable model;
  TrainingOptions training;
};

struct ScenarioFlow {
  Rank source;
  Rank target;
  Bytes size;
  Duration at;
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
struct ScenarioFault {
  Duration at;
  std::variant<LossFault, BurstFault, LinkFault, RateFault, PauseFault, RestartFault> what;
};

struct Scenario {
  std::string name;
  std::unique_ptr<Topology> topology;
  std::unique_ptr<TransportFactory> transport;
  NetworkOptions network;
  // How jobs use connections; flows of their own always start cold.
  int most_at_once = 1;
  bool warm = true;
  Duration until = Duration::milliseconds(60'000);
  std::vector<ScenarioJob> jobs;
  std::vector<ScenarioFlow> flows;
  std::vector<ScenarioFault> faults;
};

struct ScenarioLoaders {
  std::function<Result<Topology>(const std::string&)> topology;
  std::function<Result<ModelTable>(const std::string&)> model;
};

// Every error names the line, what stands there and what is allowed.
Result<Scenario> scenario_from_yaml(std::string_view text, std::string_view source,
                                    const ScenarioLoaders& loaders);

}  // namespace thalweg
