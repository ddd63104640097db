// The result of one run of a scenario, as `thalweg sim run` prints it.
#pragma once

#include <string>

#include "sim/scenario/scenario_run.h"
#include "topology/topology.h"

namespace thalweg::lab {

// The run for people: its jobs, its failures, the times of its flows, and what the network did.
[[nodiscard]] std::string run_text(const sim::ScenarioResult& result,
                                   const sim::Scenario& scenario);

// One line of CSV per flow that ended.
[[nodiscard]] std::string flows_csv(const sim::ScenarioResult& result,
                                    const topology::Topology& topology);

}  // namespace thalweg::lab
