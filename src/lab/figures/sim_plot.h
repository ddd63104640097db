// Makes a figure of one run of a scenario: what arrived, waited and was lost over time, with the
// faults marked, and how long iterations and flows took.
#pragma once

#include "lab/figures/figure.h"
#include "sim/observe/recorder.h"
#include "sim/scenario/scenario_run.h"

namespace thalweg::lab {

// Panels that would be empty are left out.
Figure figure_of(const sim::Scenario& scenario, const sim::ScenarioResult& result,
                 const sim::RunRecorder& recorder);

}  // namespace thalweg::lab
