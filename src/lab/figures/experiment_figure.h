// Makes figures and tables of an experiment's plots.
#pragma once

#include <string>
#include <vector>

#include "lab/figures/figure.h"
#include "sim/scenario/experiment.h"

namespace thalweg::lab {

// One figure per plot, whose `path` is the plot's name.
Result<std::vector<FigureFile>> experiment_figures(const sim::Experiment& experiment,
                                                   const sim::ExperimentResult& result);

// The same numbers as text, with one table per panel: one row per value of x, one column per line.
std::vector<std::string> plot_tables(const sim::Experiment& experiment,
                                     const sim::ExperimentResult& result);

}  // namespace thalweg::lab
