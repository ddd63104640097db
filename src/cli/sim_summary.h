// What the network did in a run, in a few lines for people.
#pragma once

#include <string>

#include "sim/scenario_run.h"

namespace thalweg {

// The busiest links, and what arrived, was lost and was marked.
std::string network_summary(const ScenarioResult& result, const Topology& topology);

}  // namespace thalweg
