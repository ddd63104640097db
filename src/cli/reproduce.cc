// `thalweg reproduce`: figures of the papers, as the files of experiments/ describe them.
#include "cli/reproduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/experiment_figure.h"
#include "cli/home.h"
#include "cli/points.h"
#include "cli/scenario_files.h"
#include "cli/sweep_output.h"
#include "sim/experiment.h"
#include "sim/scenario_run.h"

namespace thalweg {
namespace {

struct Arguments {
  std::string what;  // "", "rat" or "rat/fig4"
  std::string output = "reproduce";
  std::vector<std::string> settings;
  int at_once = 0;
  bool list = false;
  bool quick = false;
  bool json = false;
  bool no_plots = false;
};

struct Found {
  std::string name;  // "rat/fig4"
  std::string path;
};

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
    if (what.empty() || f.name == what || f.name.starts_with(what + "/")) chosen.push_back(f);
  }
  if (!chosen.empty()) return chosen;
  std::string names;
  for (const Found& f : all) names += " " + f.name;
  return Error(fmt::format("'{}' is not an experiment; there are{}", what, names));
}

// One experiment with what its points gave and what that says of the paper's numbers.
struct Reproduced {
  Experiment experiment;
  ExperimentResult result;
  std::vector<std::optional<double>> ours;  // [claim]
  long peak_memory_kib = 0;
};

Result<std::optional<Reproduced>> reproduce(const Found& found, const Arguments& arguments,
                                            const Settings& settings) {
  const ScenarioLoaders loaders = scenario_loaders("");
  THALWEG_TRY(const std::string text, read_file(found.path));
  Reproduced r;
  THALWEG_TRY(r.experiment, experiment_from_yaml(text, found.path, loaders));
  r.result.axes = arguments.quick ? r.experiment.quick : r.experiment.axes;
  THALWEG_TRY(r.result.points, points_of(r.result.axes));
  const auto run_point = [&](std::size_t i) -> Result<std::string> {
    Settings all = settings;
    const Settings& own = r.result.points[i].settings;
    all.insert(all.end(), own.begin(), own.end());
    THALWEG_TRY(const Scenario scenario, scenario_of_experiment(text, found.path, loaders, all));
    THALWEG_TRY(const ScenarioResult result, run_scenario(scenario, {}));
    if (!result.violations.empty()) {
      return Error("a checker of the simulator complains: " + result.violations.front());
    }
    return to_json(result, scenario).dump();
  };
  THALWEG_TRY(auto done, run_points(r.result.points.size(),
                                    {.at_once = arguments.at_once,
                                     .name =
                                         [&](std::size_t i) {
                                           return found.name + " at " +
                                                  to_string(r.result.points[i].settings);
                                         }},
                                    run_point));
  if (!done) return std::optional<Reproduced>();
  for (const std::string& point : done->texts) r.result.results.push_back(Json::parse(point));
  r.peak_memory_kib = done->peak_memory_kib;
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
    if (!r.result.results[p]["finished"].get<bool>()) {
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
      ratio = *r.ours[c] / claim.paper;
    }
    claims.push_back({{"claim", claim.say},
                      {"unit", claim.unit},
                      {"paper", claim.paper},
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
    rows.push_back({claim.say, claim.unit, fmt::format("{:.4g}", claim.paper),
                    r.ours[c] ? fmt::format("{:.3g}", *r.ours[c]) : "not run",
                    r.ours[c] ? fmt::format("{:.2f}", *r.ours[c] / claim.paper) : "-"});
  }
  std::cout << format_table(rows) << '\n';
  for (const std::string& point : unfinished(r)) {
    std::cout << "did not finish, and is left out: " << point << '\n';
  }
  for (const std::string& plot : plots) std::cout << "plot: " << plot << '\n';
  std::cout << fmt::format("{} points; the largest took {} MiB of memory\n", r.result.points.size(),
                           r.peak_memory_kib / 1024);
}

Status prepare_folder(const std::string& path) {
  std::error_code failure;
  std::filesystem::create_directories(path, failure);
  if (failure) return Error(fmt::format("--output: {}: {}", path, failure.message()));
  return ok_status();
}

Result<int> list_experiments(const std::vector<Found>& all) {
  std::vector<std::vector<std::string>> rows;
  for (const Found& f : all) {
    THALWEG_TRY(const std::string text, read_file(f.path));
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
  if (arguments.at_once < 0) return Error("-j: must be 0 (all cores) or above");
  THALWEG_TRY(const std::vector<Found> chosen, choose(all, arguments.what));
  Settings settings;
  for (const std::string& text : arguments.settings) {
    const Result<Setting> setting = parse_setting(text);
    if (!setting.ok()) return setting.error().within("--set");
    settings.push_back(*setting);
  }
  if (!arguments.no_plots) {
    THALWEG_TRY_STATUS(check_figure_paths({arguments.output + "/figure.svg"}));
    THALWEG_TRY_STATUS(prepare_folder(arguments.output));
  }
  Json results = Json::array();
  for (const Found& found : chosen) {
    THALWEG_TRY(const auto r, reproduce(found, arguments, settings));
    if (!r) continue;
    std::vector<FigureFile> figures;
    std::vector<std::string> plots;
    if (!arguments.no_plots) {
      THALWEG_TRY(figures, experiment_figures(r->experiment, r->result));
      for (FigureFile& figure : figures) {
        std::string name = found.name;
        std::ranges::replace(name, '/', '-');
        figure.path = fmt::format("{}/{}-{}.svg", arguments.output, name, figure.path);
        plots.push_back(figure.path);
      }
      if (!figures.empty()) THALWEG_TRY_STATUS(draw_figures(figures));
    }
    results.push_back(to_json(found, *r, plots));
    if (!arguments.json) print(found, *r, plots);
  }
  if (arguments.json && !results.empty()) {
    std::cout << (results.size() == 1 ? results[0] : results).dump(2) << '\n';
  }
  return 0;
}

}  // namespace

void add_reproduce(CLI::App& program) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& app = *program.add_subcommand(
      "reproduce", "figures of the papers: the paper's numbers, ours and the ratio, with plots");
  app.add_option("experiment", arguments->what, "PAPER or PAPER/FIGURE; all if none is named");
  app.add_flag("--list", arguments->list, "list the experiments");
  app.add_flag("--quick", arguments->quick, "a first look: the few points the experiment names");
  app.add_option("--output", arguments->output, "folder for the plots");
  app.add_flag("--no-plots", arguments->no_plots, "draw nothing");
  app.add_option("--set", arguments->settings, "key=value: changes every point's scenario")
      ->type_name("K=V")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("-j,--jobs", arguments->at_once, "points at once (0: all cores)");
  app.add_flag("--json", arguments->json, "print a JSON object");
  on_run(app, [arguments] { return run(*arguments); });
}

}  // namespace thalweg
