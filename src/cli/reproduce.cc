// `thalweg reproduce`: figures of the papers, as the files of experiments/ describe them:
// simulated, or (experiments/e2e) trained over testbeds.
#include "cli/reproduce.h"

#include <fmt/format.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/convergence.h"
#include "cli/experiment_figure.h"
#include "cli/home.h"
#include "cli/scenario_files.h"
#include "cli/sim_sweep.h"
#include "cli/sweep_output.h"
#include "net/system.h"
#include "sim/experiment.h"

namespace thalweg {
namespace {

struct Arguments {
  std::string what;  // "", "rat" or "rat/fig4"
  std::string output = "reproduce";
  SweepArguments sweep;
  bool list = false;
  bool quick = false;
  bool json = false;
  bool no_plots = false;
};

struct Found {
  std::string name;  // "rat/fig4"
  std::string path;

  // Trained over a testbed by python/thalweg/e2e.py, not simulated.
  [[nodiscard]] bool is_live() const { return name.starts_with("e2e/"); }
};

Result<std::string> title_of(const std::string& text, const std::string& path) {
  try {
    const YAML::Node title = YAML::Load(text)["title"];
    if (title && title.IsScalar()) return title.Scalar();
  } catch (const YAML::Exception& error) {
    return Error(fmt::format("{}: {}", path, error.what()));
  }
  return Error(fmt::format("{}: 'title' is missing", path));
}

// All experiments, by name.
Result<std::vector<Found>> find_experiments() {
  const std::filesystem::path folder = std::filesystem::path(home_folder()) / "experiments";
  std::vector<Found> found;
  std::error_code failure;
  for (auto entry = std::filesystem::recursive_directory_iterator(folder, failure);
       entry != std::filesystem::recursive_directory_iterator(); entry.increment(failure)) {
    if (failure) break;
    if (entry->path().extension() != ".yaml") continue;
    const auto name = entry->path().lexically_relative(folder).replace_extension();
    found.push_back({name.generic_string(), entry->path().string()});
  }
  if (found.empty()) {
    return Error(fmt::format("{} has no experiments (THALWEG_HOME names the project's folder)",
                             folder.string()));
  }
  std::ranges::sort(found, {}, &Found::name);
  return found;
}

Result<std::vector<Found>> choose(const std::vector<Found>& all, const std::string& what) {
  std::vector<Found> chosen;
  for (const Found& f : all) {
    const bool named = f.name == what || f.name.starts_with(what + "/");
    if (what.empty() ? !f.is_live() : named) chosen.push_back(f);
  }
  if (!chosen.empty()) return chosen;
  std::string names;
  for (const Found& f : all) names += " " + f.name;
  return Error(fmt::format("'{}' is not an experiment; there are{}", what, names));
}

// One experiment, ready to run.
struct Prepared {
  Found found;
  Experiment experiment;
  std::vector<Axis> axes;
  Sweep sweep;
};

Result<Prepared> prepare(const Found& found, const Arguments& arguments, const Settings& settings) {
  THALWEG_TRY(const std::string text, read_file(found.path));
  const ScenarioLoaders loaders = scenario_loaders("");
  Prepared p{.found = found, .experiment = {}, .axes = {}, .sweep = {}};
  THALWEG_TRY(p.experiment, experiment_from_yaml(text, found.path, loaders));
  p.axes = arguments.quick ? p.experiment.quick : p.experiment.axes;
  p.sweep.name = found.name;
  p.sweep.settings = settings;
  THALWEG_TRY(p.sweep.points, points_of(p.axes));
  p.sweep.read = [text, path = found.path, loaders](const Settings& all) {
    return scenario_of_experiment(text, path, loaders, all);
  };
  THALWEG_TRY_STATUS(check_points(p.sweep));
  return p;
}

// One experiment with what its points gave and what that says of the paper's numbers.
struct Reproduced {
  Experiment experiment;
  ExperimentResult result;
  std::vector<std::optional<double>> ours;  // [claim]
  std::string summary;
};

Result<std::optional<Reproduced>> reproduce(const Prepared& prepared, const Arguments& arguments) {
  THALWEG_TRY(auto done, run_sweep(prepared.sweep, arguments.sweep.at_once));
  if (!done) return std::optional<Reproduced>();
  Reproduced r{.experiment = prepared.experiment,
               .result = {.axes = prepared.axes, .points = prepared.sweep.points, .results = {}},
               .ours = {},
               .summary = done->summary()};
  r.result.results = std::move(done->results);
  if (r.experiment.training) {
    THALWEG_TRY_STATUS(
        join_training(*r.experiment.training, arguments.quick, prepared.sweep, r.result));
  }
  for (const Claim& claim : r.experiment.claims) {
    THALWEG_TRY(const std::optional<double> ours, evaluate(claim, r.result));
    r.ours.push_back(ours);
  }
  return std::optional(std::move(r));
}

// The points that had not finished by their scenario's `until`. No claim or plot counts them.
std::vector<std::string> unfinished(const Reproduced& r) {
  std::vector<std::string> names;
  for (std::size_t p = 0; p < r.result.points.size(); ++p) {
    if (!finished(r.result.results[p])) {
      names.push_back(to_string(r.result.points[p].settings));
    }
  }
  return names;
}

Json to_json(const Found& found, const Reproduced& r, const std::vector<std::string>& plots) {
  Json claims = Json::array();
  for (std::size_t c = 0; c < r.ours.size(); ++c) {
    const Claim& claim = r.experiment.claims[c];
    Json ours;
    Json ratio;
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
  Json result{{"experiment", found.name}, {"title", r.experiment.title}, {"claims", claims}};
  result["unfinished"] = unfinished(r);
  result["plots"] = plots;
  result.update(sweep_json(r.result.axes, r.result.points, r.result.results));
  return result;
}

void print(const Found& found, const Reproduced& r, const std::vector<std::string>& plots) {
  std::cout << fmt::format("{}: {}\n\n", found.name, r.experiment.title);
  for (const auto& table : plot_tables(r.experiment, r.result)) std::cout << table << '\n';
  std::vector<std::vector<std::string>> rows{{"", "unit", "paper", "ours", "ours/paper"}};
  for (std::size_t c = 0; c < r.ours.size(); ++c) {
    const Claim& claim = r.experiment.claims[c];
    rows.push_back(
        {claim.say, claim.unit, claim.paper ? fmt::format("{:.4g}", *claim.paper) : "-",
         r.ours[c] ? fmt::format("{:.3g}", *r.ours[c]) : "not run",
         r.ours[c] && claim.paper ? fmt::format("{:.2f}", *r.ours[c] / *claim.paper) : "-"});
  }
  std::cout << format_table(rows) << '\n';
  for (const std::string& point : unfinished(r)) {
    std::cout << "did not finish, and is left out: " << point << '\n';
  }
  for (const std::string& plot : plots) std::cout << "plot: " << plot << '\n';
  std::cout << r.summary << '\n';
}

// The paths of the plots.
Result<std::vector<std::string>> draw_plots(const Found& found, const Reproduced& r,
                                            const std::string& folder) {
  THALWEG_TRY(std::vector<FigureFile> figures, experiment_figures(r.experiment, r.result));
  std::string name = found.name;
  std::ranges::replace(name, '/', '-');
  std::vector<std::string> plots;
  for (FigureFile& figure : figures) {
    figure.path = fmt::format("{}/{}-{}.svg", folder, name, figure.path);
    plots.push_back(figure.path);
  }
  if (!figures.empty()) THALWEG_TRY_STATUS(draw_figures(figures));
  return plots;
}

Status prepare_folder(const std::string& path) {
  std::error_code failure;
  std::filesystem::create_directories(path, failure);
  if (failure) return Error(fmt::format("--output: {}: {}", path, failure.message()));
  return ok_status();
}

// The script takes over: it says what it does while it does it, and takes its testbeds down when it
// is ended.
Result<int> run_live(const std::vector<Found>& chosen, const Arguments& arguments) {
  if (!arguments.sweep.settings.empty()) {
    return Error("--set: the experiments of e2e are trained, not simulated: change their files");
  }
  if (arguments.sweep.at_once != 0) {
    return Error("-j: the experiments of e2e have the machine to themselves, one after the other");
  }
  std::vector<std::string> words{python_interpreter(), "-m", "thalweg.e2e", "--program",
                                 std::filesystem::read_symlink("/proc/self/exe").string()};
  if (arguments.quick) words.emplace_back("--quick");
  if (arguments.json) words.emplace_back("--json");
  if (!arguments.no_plots) words.insert(words.end(), {"--output", arguments.output});
  for (const Found& found : chosen) words.push_back(found.path);
  setenv("PYTHONPATH", (home_folder() + "/python").c_str(), 1);
  setenv("THALWEG_BACKEND", "0", 1);  // the script itself needs no PyTorch
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execvp(pointers[0], pointers.data());
  return system_error(fmt::format("cannot run {}", words[0]), errno);
}

Result<int> list_experiments(const std::vector<Found>& all) {
  std::vector<std::vector<std::string>> rows;
  for (const Found& f : all) {
    THALWEG_TRY(const std::string text, read_file(f.path));
    if (f.is_live()) {
      THALWEG_TRY(const std::string title, title_of(text, f.path));
      rows.push_back({f.name, "testbed", title});
      continue;
    }
    THALWEG_TRY(const Experiment experiment,
                experiment_from_yaml(text, f.path, scenario_loaders("")));
    THALWEG_TRY(const auto points, points_of(experiment.axes));
    rows.push_back({f.name, fmt::format("{} points", points.size()), experiment.title});
  }
  std::size_t widest = 0;
  for (const auto& row : rows) widest = std::max(widest, row[0].size());
  for (const auto& row : rows) {
    std::cout << fmt::format("{:<{}}  {:>10}  {}\n", row[0], widest, row[1], row[2]);
  }
  return 0;
}

Result<int> run(const Arguments& arguments) {
  THALWEG_TRY(const std::vector<Found> all, find_experiments());
  if (arguments.list) return list_experiments(all);
  THALWEG_TRY(const std::vector<Found> chosen, choose(all, arguments.what));
  if (chosen.front().is_live()) return run_live(chosen, arguments);
  THALWEG_TRY(const Settings settings, parse_settings(arguments.sweep));
  // Bad input is found before the first point of the first experiment runs.
  std::vector<Prepared> experiments;
  for (const Found& found : chosen) {
    THALWEG_TRY(Prepared prepared, prepare(found, arguments, settings));
    experiments.push_back(std::move(prepared));
  }
  if (!arguments.no_plots) {
    THALWEG_TRY_STATUS(check_figure_paths({arguments.output + "/figure.svg"}));
    THALWEG_TRY_STATUS(prepare_folder(arguments.output));
  }
  Json results = Json::array();
  bool all_finished = true;
  for (const Prepared& experiment : experiments) {
    THALWEG_TRY(const auto r, reproduce(experiment, arguments));
    if (!r) continue;
    std::vector<std::string> plots;
    if (!arguments.no_plots) {
      THALWEG_TRY(plots, draw_plots(experiment.found, *r, arguments.output));
    }
    results.push_back(to_json(experiment.found, *r, plots));
    if (!arguments.json) print(experiment.found, *r, plots);
    all_finished = all_finished && unfinished(*r).empty();
  }
  if (arguments.json && !results.empty()) {
    std::cout << (results.size() == 1 ? results[0] : results).dump(2) << '\n';
  }
  return all_finished ? 0 : kExitNo;
}

}  // namespace

void add_reproduce(CLI::App& program) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& app = *program.add_subcommand(
      "reproduce",
      "figures of the papers: the paper's numbers, ours and the ratio, with plots; "
      "exit code 1 if a point did not finish");
  app.add_option(
      "experiment", arguments->what,
      "PAPER, PAPER/FIGURE, or e2e (trained over testbeds); all simulations if none is named");
  app.add_flag("--list", arguments->list, "list the experiments");
  app.add_flag("--quick", arguments->quick, "a first look: the few points the experiment names");
  app.add_option("--output", arguments->output, "folder for the plots");
  app.add_flag("--no-plots", arguments->no_plots, "draw nothing");
  add_sweep_options(app, arguments->sweep, "key=value: changes every point's scenario");
  app.add_flag("--json", arguments->json, "print a JSON object");
  on_run(app, [arguments] { return run(*arguments); });
}

}  // namespace thalweg
