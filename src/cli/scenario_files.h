// Scenarios from files, with the topologies and models they name.
#pragma once

#include <string>

#include "sim/scenario.h"

namespace thalweg {

// Paths are looked up from the current folder and then from that of the project. A model is a path
// or the name of a table in `models`; empty: the project's folder of tables.
ScenarioLoaders scenario_loaders(const std::string& models);

}  // namespace thalweg
