// The options of `thalweg bench allreduce`, and the network that it runs on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "lab/bench/allreduce/libraries.h"
#include "lab/emulation/emulated_network.h"
#include "topology/topology.h"

namespace thalweg::lab::allreduce {

// The options as they were given. bench_allreduce.cc in src/cli says what each means.
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
  std::vector<std::string> rates;  // one for all devices, or one per device
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
  std::optional<topology::Topology> topology;
  std::vector<double> rates_gbps = {};  // of each device of a host; empty: not limited
  double rate_gbps = 0;                 // the slowest rate; 0: not limited
  double loss = 0;                      // probability, of every packet
  double bound = 0;                     // of DLCP's loss
  int turns = 3;
  std::int64_t idle_ms = 1000;
};

// Checks the options. The error names the option that is wrong.
Result<Settings> settings_of(const Options& options);
// Makes the network that the options ask for; nothing if the ranks run on the loopback device.
Result<std::optional<EmulatedNetwork>> network_of(const Options& options, const Settings& settings);

}  // namespace thalweg::lab::allreduce
