// What a fault of a scenario is called in plots and timelines: "leaf0–spine0 down".
#pragma once

#include <string>

#include "sim/scenario.h"

namespace thalweg {

std::string name_of(const ScenarioFault& fault, const Topology& topology);

}  // namespace thalweg
