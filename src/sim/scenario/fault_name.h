// The name of a scenario's fault in plots and timelines, such as "leaf0–spine0 down".
#pragma once

#include <string>

#include "sim/scenario/scenario.h"

namespace thalweg::sim {

std::string name_of(const ScenarioFault& fault, const topology::Topology& topology);

}  // namespace thalweg::sim
