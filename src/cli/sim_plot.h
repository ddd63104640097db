// One run of a scenario as a figure: what arrived, waited and was lost over time, with the faults
// marked; how long iterations and flows took.
#pragma once

#include "cli/figure.h"
#include "sim/recorder.h"
#include "sim/scenario_run.h"

namespace thalweg {

// Panels that would be empty are left out.
Figure figure_of(const Scenario& scenario, const ScenarioResult& result,
                 const RunRecorder& recorder);

}  // namespace thalweg
