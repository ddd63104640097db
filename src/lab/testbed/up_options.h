// What a user asks of `thalweg testbed up`, and the network and settings that come of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "sim/core/network.h"
#include "topology/topology.h"

namespace thalweg::lab {

// The options of the command, as they were given.
struct TestbedUpOptions {
  std::string topology;  // a file or a shorthand
  std::string name;
  double scale = 1;  // of rates, and the inverse of delays
  std::size_t mtu = 1500;
  std::vector<std::string> settings;   // KEY=VALUE, of the switches
  std::vector<std::string> aggregate;  // switches that sum gradients, or "all"
  bool foreground = false;
  std::uint64_t seed = 1;  // of losses and paths
};

// The network with its rates multiplied by `scale` and its delays divided by it: the same network
// in slow motion. It is an error if `scale` is not above 0 and at most 1, or if a link gets out of
// range.
[[nodiscard]] Result<topology::Topology> scaled_topology(const topology::Topology& topology,
                                                         double scale);

// The options of the switches. Each setting is KEY=VALUE as in the section 'network' of a scenario.
// The queues are by strict priority unless a setting says otherwise. What a testbed cannot do, such
// as pFabric, is an error.
[[nodiscard]] Result<sim::NetworkOptions> network_options_from(
    const std::vector<std::string>& settings);

}  // namespace thalweg::lab
