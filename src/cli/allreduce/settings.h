// What `thalweg bench allreduce` was asked for, and the network that it is to run on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "cli/allreduce/libraries.h"
#include "cli/emulated_network.h"
#include "topology/topology.h"

namespace thalweg::allreduce {

// As they were given.
struct Options {
  std::optional<int> ranks;
  std::vector<std::string> sizes;
  std::string type = "float32";
  std::string op = "sum";
  std::vector<std::string> transports = {"tcp"};
  std::vector<std::string> schemes = {""};
  std::vector<std::string> against;
  bool netns = false;
  int nics = 1;
  int streams = 1;
  std::string topology;
  bool simulate = false;
  std::vector<std::string> rates;  // one for all devices, or one each
  std::string loss;
  std::string bound;
  std::vector<std::string> congestion_controls = {""};  // "": the system's
  bool json = false;
  bool quick = false;
};

// The options, checked.
struct Settings {
  Work work;
  std::vector<Bytes> sizes;
  std::optional<Topology> topology;
  std::vector<double> rates_gbps = {};  // of each device of a host; none: as fast as they go
  double rate_gbps = 0;                 // the slowest; 0: none
  double loss = 0;
  double bound = 0;
  int turns = 3;
  std::int64_t idle_ms = 1000;
};

Result<Settings> settings_of(const Options& options);
// None: the loopback device.
Result<std::optional<EmulatedNetwork>> network_of(const Options& options, const Settings& settings);

}  // namespace thalweg::allreduce
