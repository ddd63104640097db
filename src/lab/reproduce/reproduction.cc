#include "lab/reproduce/reproduction.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <system_error>
#include <utility>

#include "lab/console.h"
#include "lab/figures/convergence.h"
#include "lab/figures/experiment_figure.h"
#include "lab/figures/figure.h"
#include "lab/files.h"
#include "lab/sweep/scenario_files.h"
#include "lab/sweep/sweep_output.h"

namespace thalweg::lab {

Result<PreparedExperiment> prepare_experiment(const ExperimentFile& file, bool quick,
                                              const sim::Settings& settings) {
  THALWEG_TRY(const std::string text, read_file(file.path));
  const sim::ScenarioLoaders loaders = scenario_loaders("");
  PreparedExperiment p{.file = file, .experiment = {}, .axes = {}, .sweep = {}};
  THALWEG_TRY(p.experiment, sim::experiment_from_yaml(text, file.path, loaders));
  p.axes = quick ? p.experiment.quick : p.experiment.axes;
  p.sweep.name = file.name;
  p.sweep.settings = settings;
  THALWEG_TRY(p.sweep.points, sim::points_of(p.axes));
  p.sweep.read = [text, path = file.path, loaders](const sim::Settings& all) {
    return sim::scenario_of_experiment(text, path, loaders, all);
  };
  THALWEG_TRY_STATUS(check_points(p.sweep));
  return p;
}

Result<std::optional<Reproduction>> reproduce(const PreparedExperiment& prepared, bool quick,
                                              int at_once) {
  THALWEG_TRY(auto done, run_sweep(prepared.sweep, at_once));
  if (!done) return std::optional<Reproduction>();
  Reproduction r{.name = prepared.file.name,
                 .experiment = prepared.experiment,
                 .result = {.axes = prepared.axes, .points = prepared.sweep.points, .results = {}},
                 .ours = {},
                 .summary = done->summary()};
  r.result.results = std::move(done->results);
  if (r.experiment.training) {
    THALWEG_TRY_STATUS(join_training(*r.experiment.training, quick, prepared.sweep, r.result));
  }
  for (const sim::Claim& claim : r.experiment.claims) {
    THALWEG_TRY(const std::optional<double> ours, sim::evaluate(claim, r.result));
    r.ours.push_back(ours);
  }
  return std::optional(std::move(r));
}

std::vector<std::string> unfinished_points(const Reproduction& r) {
  std::vector<std::string> names;
  for (std::size_t p = 0; p < r.result.points.size(); ++p) {
    if (!finished(r.result.results[p])) {
      names.push_back(sim::to_string(r.result.points[p].settings));
    }
  }
  return names;
}

Status prepare_plot_folder(const std::string& folder) {
  THALWEG_TRY_STATUS(check_figure_paths({folder + "/figure.svg"}));
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) return Error(fmt::format("--out: {}: {}", folder, failure.message()));
  return ok_status();
}

Result<std::vector<std::string>> draw_plots(const Reproduction& r, const std::string& folder) {
  THALWEG_TRY(std::vector<FigureFile> figures, experiment_figures(r.experiment, r.result));
  std::string name = r.name;
  std::ranges::replace(name, '/', '-');
  std::vector<std::string> plots;
  for (FigureFile& figure : figures) {
    figure.path = fmt::format("{}/{}-{}.svg", folder, name, figure.path);
    plots.push_back(figure.path);
  }
  if (!figures.empty()) THALWEG_TRY_STATUS(draw_figures(figures));
  return plots;
}

sim::Json reproduction_json(const Reproduction& r, const std::vector<std::string>& plots) {
  sim::Json claims = sim::Json::array();
  for (std::size_t c = 0; c < r.ours.size(); ++c) {
    const sim::Claim& claim = r.experiment.claims[c];
    sim::Json ours;
    sim::Json ratio;
    if (r.ours[c]) {
      ours = *r.ours[c];
      if (claim.paper) ratio = *r.ours[c] / *claim.paper;
    }
    claims.push_back(
        {{"claim", claim.say},
         {"unit", claim.unit},
         {"paper", claim.paper ? nlohmann::ordered_json(*claim.paper) : nlohmann::ordered_json()},
         {"ours", ours},
         {"ratio", ratio}});
  }
  sim::Json result{{"experiment", r.name}, {"title", r.experiment.title}, {"claims", claims}};
  result["unfinished"] = unfinished_points(r);
  result["plots"] = plots;
  result.update(sweep_json(r.result.axes, r.result.points, r.result.results));
  return result;
}

std::string reproduction_text(const Reproduction& r, const std::vector<std::string>& plots) {
  std::string text = fmt::format("{}: {}\n\n", r.name, r.experiment.title);
  for (const auto& table : plot_tables(r.experiment, r.result)) text += table + "\n";
  std::vector<std::vector<std::string>> rows{{"", "unit", "paper", "ours", "ours/paper"}};
  for (std::size_t c = 0; c < r.ours.size(); ++c) {
    const sim::Claim& claim = r.experiment.claims[c];
    rows.push_back(
        {claim.say, claim.unit, claim.paper ? fmt::format("{:.4g}", *claim.paper) : "-",
         r.ours[c] ? fmt::format("{:.3g}", *r.ours[c]) : "not run",
         r.ours[c] && claim.paper ? fmt::format("{:.2f}", *r.ours[c] / *claim.paper) : "-"});
  }
  text += format_table(rows) + "\n";
  for (const std::string& point : unfinished_points(r)) {
    text += "did not finish, and is left out: " + point + "\n";
  }
  for (const std::string& plot : plots) text += "plot: " + plot + "\n";
  return text + r.summary + "\n";
}

}  // namespace thalweg::lab
