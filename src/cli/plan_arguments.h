// The options that the `thalweg plan` subcommands share.
#pragma once

#include <CLI/CLI.hpp>
#include <vector>

#include "lab/planning/plan_subject.h"
#include "lab/planning/strategies.h"

namespace thalweg::cli {

// Adds the network, the size and the cost model.
void add_plan_options(CLI::App& app, lab::PlanArguments& arguments);
// Adds the files to which a plan is written.
void add_output_options(CLI::App& app, lab::PlanOutputs& outputs);
// Adds the options for strategies, which make --size optional, and returns them.
std::vector<CLI::Option*> add_strategy_options(CLI::App& app, lab::StrategyArguments& arguments);

}  // namespace thalweg::cli
