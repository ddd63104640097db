// One simulated experiment of `thalweg reproduce`: its points are run, its claims are evaluated
// beside the paper's numbers, and its plots are drawn.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "lab/reproduce/experiment_files.h"
#include "lab/sweep/sim_sweep.h"
#include "sim/scenario/experiment.h"
#include "sim/scenario/result_json.h"

namespace thalweg::lab {

// An experiment that was read and checked, ready to run.
struct PreparedExperiment {
  ExperimentFile file;
  sim::Experiment experiment;
  std::vector<sim::Axis> axes;
  Sweep sweep;
};

// `quick`: only the few points that the experiment names for a first look. `settings` change the
// scenario of every point. Every point is read, so that bad input is an error here.
[[nodiscard]] Result<PreparedExperiment> prepare_experiment(const ExperimentFile& file, bool quick,
                                                            const sim::Settings& settings);

// The results of an experiment's points, and our values for the paper's numbers.
struct Reproduction {
  std::string name;  // "rat/fig4"
  sim::Experiment experiment;
  sim::ExperimentResult result;
  std::vector<std::optional<double>> ours;  // [claim]; none: the points it needs were not run
  std::string summary;                      // how many points ran, and what they took
};

// Runs all points, `at_once` at a time (0: one per core). Returns nothing on the ranks of an MPI
// launcher that are not the first.
[[nodiscard]] Result<std::optional<Reproduction>> reproduce(const PreparedExperiment& prepared,
                                                            bool quick, int at_once);

// The points that had not finished by their scenario's `until`. No claim or plot counts them.
[[nodiscard]] std::vector<std::string> unfinished_points(const Reproduction& reproduction);

// Checks that plots can be drawn to `folder`, and makes the folder.
[[nodiscard]] Status prepare_plot_folder(const std::string& folder);
// Draws the experiment's plots to `folder` and returns their paths.
[[nodiscard]] Result<std::vector<std::string>> draw_plots(const Reproduction& reproduction,
                                                          const std::string& folder);

// The reproduction as JSON, and as tables for people. `plots`: the paths of the plots.
[[nodiscard]] sim::Json reproduction_json(const Reproduction& reproduction,
                                          const std::vector<std::string>& plots);
[[nodiscard]] std::string reproduction_text(const Reproduction& reproduction,
                                            const std::vector<std::string>& plots);

}  // namespace thalweg::lab
