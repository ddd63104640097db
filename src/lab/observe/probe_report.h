// The network that `thalweg probe` measured between the ranks of a job, as text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "topology/probe.h"

namespace thalweg::lab {

// A table of the regions that were found: their ranks, the shortest round trip, and the slowest and
// fastest rate within each region and between regions.
[[nodiscard]] std::string probe_table(const topology::ProbedTopology& probed,
                                      const std::vector<topology::ProbeSample>& samples);

// Everything that was measured, and the topology.
[[nodiscard]] nlohmann::ordered_json probe_json(const topology::ProbedTopology& probed,
                                                const std::vector<topology::ProbeSample>& samples);

}  // namespace thalweg::lab
