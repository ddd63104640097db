// Finds the topologies and models that scenario files name.
#pragma once

#include <string>

#include "sim/scenario/scenario.h"

namespace thalweg::lab {

// Loaders for reading scenarios. They look for a path below the current folder, and then below the
// project's. A model is a path or the name of a table in the folder `models` (empty: the project's
// folder of tables), or the path of a Chakra trace, which ends in .et.
sim::ScenarioLoaders scenario_loaders(const std::string& models);

}  // namespace thalweg::lab
