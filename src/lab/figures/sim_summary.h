// A summary of what the network did in a run, for people.
#pragma once

#include <string>

#include "sim/scenario/scenario_run.h"

namespace thalweg::lab {

// The busiest links, and the packets that arrived, were lost and were marked.
std::string network_summary(const sim::ScenarioResult& result, const topology::Topology& topology);

}  // namespace thalweg::lab
