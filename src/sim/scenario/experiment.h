// An experiment: a figure of a paper as a sweep over a scenario, with the paper's numbers beside
// ours (docs/experiment-format.md).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/scenario/result_json.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/sweep.h"

namespace thalweg::sim {

inline constexpr std::size_t kMaxExperimentClaims = 1'000;
inline constexpr int kMaxTrainingSeeds = 1'000;
inline constexpr int kMaxTrainingIterations = 1'000'000;

// Selects points by their labels: on each axis named here, the point has one of these labels.
using Selection = std::map<std::string, std::vector<std::string>>;

// One number of the paper, and how to get our own.
struct Claim {
  enum class Take : std::uint8_t { kMean, kGeometricMean, kMedian, kMin, kMax };
  std::string say;
  std::string measure;  // a path into a point's result
  Selection of;         // the points that count
  // Each value is divided by that of a base point: the one with these labels, and otherwise the
  // labels of the point itself. None: values are not divided.
  std::optional<std::map<std::string, std::string>> over;
  // The value is one less the quotient, in per cent: what a paper calls "less by 43 %".
  bool as_reduction = false;
  Take take = Take::kMean;
  std::optional<double> paper;  // none: the paper only says which is larger
  std::string unit;
};

// A plot: one panel per label of `panels`, one line per label of `lines`, points along `x`.
struct ExperimentPlot {
  std::string name;
  std::string title;
  std::string measure;
  std::string label;  // of the vertical axis
  std::string x;
  std::string lines;   // empty: one line
  std::string panels;  // empty: one panel
  Selection of;
  std::optional<std::map<std::string, std::string>> over;
  bool log_x = false;
  bool log_y = false;
  std::map<std::string, double> paper;  // the paper's values, by label of x
};

// Real training with the strategies of the points' first jobs, at the speed of their simulation
// (python/thalweg/lab/train_strategies.py). Its results are in a point's result as `training`.
struct ExperimentTraining {
  std::map<std::string, std::string> base;  // labels of the point whose accuracy is the target
  int seeds = 5;
  int quick_seeds = 2;
  int iterations = 300;
};

struct Experiment {
  std::string title;
  std::string about;
  std::vector<Axis> axes;
  std::vector<Axis> quick;  // for a first look: replace the axes of the same name
  std::vector<Claim> claims;
  std::vector<ExperimentPlot> plots;
  std::optional<ExperimentTraining> training;
};

// `loaders` are those of a scenario: the scenario is read once, so that its errors are found here.
Result<Experiment> experiment_from_yaml(std::string_view text, std::string_view source,
                                        const ScenarioLoaders& loaders);

// The scenario of an experiment's text, with these settings applied.
Result<Scenario> scenario_of_experiment(std::string_view text, std::string_view source,
                                        const ScenarioLoaders& loaders, const Settings& settings);

// The results of all points: results[i] belongs to points[i].
struct ExperimentResult {
  std::vector<Axis> axes;
  std::vector<SweepPoint> points;
  std::vector<Json> results;
};

// Our number for the claim, in its unit; empty if no point is selected (a first look may leave some
// out).
Result<std::optional<double>> evaluate(const Claim& claim, const ExperimentResult& result);

// A line of a plot: one value per label of the x axis. A label that is not a number counts by its
// place.
struct PlotLine {
  std::string panel;
  std::string name;
  std::vector<std::string> labels;
  std::vector<double> values;
};
Result<std::vector<PlotLine>> lines_of(const ExperimentPlot& plot, const ExperimentResult& result);

}  // namespace thalweg::sim
