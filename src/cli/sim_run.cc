#include "cli/commands.h"

#include <fmt/core.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "cli/sim_options.h"
#include "lab/console.h"
#include "lab/figures/sim_pictures.h"
#include "lab/files.h"
#include "lab/sweep/run_output.h"
#include "lab/sweep/scenario_files.h"
#include "lab/sweep/sim_sweep.h"
#include "lab/sweep/sweep_output.h"
#include "lab/terminal.h"
#include "sim/core/shard_map.h"
#include "sim/scenario/result_json.h"

namespace thalweg::cli {
namespace {

struct SimRunArguments {
  std::string scenario;
  std::string models;
  lab::SweepArguments sweep;
  std::vector<std::string> axes;
  std::string flows;
  std::string csv;
  lab::PictureArguments pictures;
  std::size_t threads = 1;
  bool json = false;
};

// Says on standard error why one run uses one thread, if it was asked to use more.
void note_one_thread(const SimRunArguments& arguments, const sim::Scenario& scenario) {
  if (arguments.threads == 1) return;
  const auto why = arguments.pictures.any() ? std::optional<std::string>("--trace and --plot")
                                            : sim::why_one_shard(scenario);
  if (why) fmt::print(stderr, "note: one thread is used, because of {}\n", *why);
}

Result<int> run_one(const SimRunArguments& arguments, const sim::Scenario& scenario) {
  THALWEG_TRY_STATUS(lab::check_pictures(arguments.pictures));
  const auto recorder = lab::recorder_for(arguments.pictures, scenario);
  note_one_thread(arguments, scenario);
  sim::ScenarioResult result;
  {
    lab::Progress progress;
    const auto show = [&](Time now, double share) {
      progress.show(fmt::format("{} simulated", to_human(now.since_start())), share);
    };
    THALWEG_TRY(result, lab::run_checked(scenario, show, recorder.get(), arguments.threads));
  }
  std::vector<lab::OutputFile> files;
  if (recorder) {
    THALWEG_TRY(files, lab::make_pictures(arguments.pictures, scenario, result, *recorder));
  }
  const sim::Json report = sim::to_json(result, scenario);
  if (!arguments.flows.empty()) {
    files.push_back({arguments.flows, lab::flows_csv(result, *scenario.topology)});
  }
  if (!arguments.csv.empty()) files.push_back({arguments.csv, lab::points_csv({}, {{}}, {report})});
  THALWEG_TRY_STATUS(lab::write_files(files));
  if (arguments.json) {
    std::cout << report.dump(2) << '\n';
  } else {
    std::cout << lab::run_text(result, scenario);
  }
  return result.finished ? 0 : kExitNo;
}

Result<int> run_all(const SimRunArguments& arguments, const lab::Sweep& sweep,
                    const std::vector<sim::Axis>& axes) {
  if (!arguments.flows.empty()) return Error("--flows is for a single run, not for a sweep");
  if (arguments.pictures.any()) {
    return Error("--trace and --plot are for a single run, not for a sweep");
  }
  if (arguments.threads != 1) {
    return Error("--threads is for a single run; -j says how many points of a sweep run at once");
  }
  THALWEG_TRY_STATUS(lab::check_points(sweep));
  THALWEG_TRY(const auto done, lab::run_sweep(sweep, arguments.sweep.at_once));
  if (!done) return 0;
  if (!arguments.csv.empty()) {
    THALWEG_TRY_STATUS(
        lab::write_files({{arguments.csv, lab::points_csv(axes, sweep.points, done->results)}}));
  }
  if (arguments.json) {
    std::cout << lab::sweep_json(axes, sweep.points, done->results).dump(2) << '\n';
  } else {
    std::cout << lab::format_table(lab::sweep_table(axes, sweep.points, done->results));
    std::cout << '\n' << done->summary() << '\n';
  }
  return std::ranges::all_of(done->results, lab::finished) ? 0 : kExitNo;
}

Result<int> run_sim_run(const SimRunArguments& arguments) {
  lab::Sweep sweep;
  THALWEG_TRY(sweep.settings, lab::parse_settings(arguments.sweep));
  const std::string path = lab::find_file(arguments.scenario, "scenarios");
  THALWEG_TRY(const std::string text, lab::read_file(path, "scenarios"));
  sweep.read = [&](const sim::Settings& settings) {
    return sim::scenario_from_yaml(text, path, lab::scenario_loaders(arguments.models), settings);
  };
  THALWEG_TRY(const sim::Scenario scenario, sweep.read(sweep.settings));
  std::vector<sim::Axis> axes = scenario.sweep;
  for (const std::string& given : arguments.axes) {
    Result<sim::Axis> axis = sim::parse_axis(given);
    if (!axis.ok()) return axis.error().within("--sweep");
    sim::put_axis(axes, std::move(*axis));
  }
  if (axes.empty()) return run_one(arguments, scenario);
  THALWEG_TRY(sweep.points, sim::points_of(axes));
  return run_all(arguments, sweep, axes);
}

}  // namespace

void add_sim_run(CLI::App& sim) {
  auto arguments = std::make_shared<SimRunArguments>();
  CLI::App& app =
      *sim.add_subcommand("run", "run a scenario; exit code 1 if it did not finish by its 'until'");
  app.add_option("scenario", arguments->scenario, "a scenario file (docs/scenario-format.md)")
      ->required();
  add_sweep_options(app, arguments->sweep, "key=value: a variable of the scenario or a path in it");
  app.add_option("--sweep", arguments->axes, "key=[value, value]: every value in turn")
      ->type_name("K=[V,V]")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--models", arguments->models, "folder of the layer tables");
  app.add_option("--flows", arguments->flows, "write every flow that ended, as CSV");
  app.add_option("--csv", arguments->csv, "write the result, one line a point, as CSV");
  app.add_option("--threads", arguments->threads,
                 "simulate the racks of a single run on so many threads; the result is the same")
      ->check(CLI::Range(std::size_t{1}, sim::kMaxShards));
  add_picture_options(app, arguments->pictures);
  app.add_flag("--json", arguments->json, "print a JSON object");
  add_examples(app,
               {"thalweg sim run two-jobs --plot two-jobs.svg",
                "thalweg sim run loss --sweep 'seed=[1, 2, 3]' --set jobs.0.scheme=ring --json"});
  on_run(app, [arguments] { return run_sim_run(*arguments); });
}

}  // namespace thalweg::cli
