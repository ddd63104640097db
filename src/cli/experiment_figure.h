// The plots of an experiment, as figures and as tables.
#pragma once

#include <string>
#include <vector>

#include "cli/figure.h"
#include "sim/experiment.h"

namespace thalweg {

// Each with the plot's name as path.
Result<std::vector<FigureFile>> experiment_figures(const Experiment& experiment,
                                                   const ExperimentResult& result);

// The same numbers, a table a panel: rows along x, a column a line.
std::vector<std::string> plot_tables(const Experiment& experiment, const ExperimentResult& result);

}  // namespace thalweg
