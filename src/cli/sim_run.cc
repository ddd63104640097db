#include "cli/sim_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/points.h"
#include "cli/scenario_files.h"
#include "cli/sim_pictures.h"
#include "cli/sim_summary.h"
#include "cli/sweep_output.h"
#include "sim/result_json.h"
#include "sim/scenario_run.h"

namespace thalweg {
namespace {

struct Arguments {
  std::string scenario;
  std::string models;
  std::vector<std::string> settings;
  std::vector<std::string> axes;
  int at_once = 0;
  std::string flows;
  std::string csv;
  PictureArguments pictures;
  bool json = false;
};

void print(const ScenarioResult& r, const Scenario& scenario) {
  std::cout << fmt::format("{} over {}\n{} after {} of simulated time\n\n",
                           scenario.name.empty() ? "scenario" : scenario.name,
                           scenario.transport->describe(), r.finished ? "finished" : "not finished",
                           to_human(r.end.since_start()));
  if (!r.jobs.empty()) {
    std::vector<std::vector<std::string>> rows{{"job", "iterations", "first", "last", "samples/s"}};
    for (const JobResult& job : r.jobs) {
      const bool any = !job.iterations.empty();
      rows.push_back({job.name, std::to_string(job.iterations.size()),
                      any ? to_human(job.iterations.front().duration()) : "-",
                      any ? to_human(job.iterations.back().duration()) : "-",
                      job.done ? fmt::format("{:.1f}", job.samples_per_second) : "not done"});
    }
    std::cout << format_table(rows) << '\n';
  }
  const Histogram times = completion_times_ms(r.flows);
  if (times.count() > 0) {
    std::cout << format_table(
                     {{"flows", "mean", "p50", "p99", "p99.9", "max"},
                      {std::to_string(times.count()), fmt::format("{:.3f} ms", times.mean()),
                       fmt::format("{:.3f} ms", times.percentile(50)),
                       fmt::format("{:.3f} ms", times.percentile(99)),
                       fmt::format("{:.3f} ms", times.percentile(99.9)),
                       fmt::format("{:.3f} ms", times.max())}})
              << '\n';
  }
  std::cout << network_summary(r, *scenario.topology);
}

std::string flows_csv(const ScenarioResult& r, const Topology& topology) {
  std::string text =
      "from,to,bytes,job,start_us,completion_us,oracle_us,retransmissions,timeouts,arrived\n";
  for (const FlowResult& f : r.flows) {
    text += fmt::format("{},{},{},{},{:.6f},{:.6f},{:.6f},{},{},{:.6f}\n",
                        topology.node(topology.host(f.spec.source)).name,
                        topology.node(topology.host(f.spec.target)).name, f.spec.bytes, f.spec.tag,
                        f.start.since_start().us(), f.completion_time().us(), f.oracle.us(),
                        f.counters.retransmissions, f.counters.timeouts, f.arrived);
  }
  return text;
}

Result<ScenarioResult> run_checked(const Scenario& scenario,
                                   const std::function<void(Time now)>& progress,
                                   RunRecorder* recorder = nullptr) {
  THALWEG_TRY(ScenarioResult result, run_scenario(scenario, progress, recorder));
  if (!result.violations.empty()) {
    return Error("a checker of the simulator complains, the result cannot be trusted: " +
                 result.violations.front());
  }
  return result;
}

Result<int> run_one(const Arguments& arguments, const Scenario& scenario) {
  THALWEG_TRY_STATUS(check_pictures(arguments.pictures));
  const auto recorder = recorder_for(arguments.pictures, scenario);
  ScenarioResult result;
  {
    Progress progress;
    const auto show = [&](Time now) {
      progress.show(fmt::format("{} simulated", to_human(now.since_start())));
    };
    THALWEG_TRY(result, run_checked(scenario, show, recorder.get()));
  }
  std::vector<OutputFile> files;
  if (recorder) {
    THALWEG_TRY(files, make_pictures(arguments.pictures, scenario, result, *recorder));
  }
  const Json json = to_json(result, scenario);
  if (!arguments.flows.empty()) {
    files.push_back({arguments.flows, flows_csv(result, *scenario.topology)});
  }
  if (!arguments.csv.empty()) files.push_back({arguments.csv, points_csv({}, {{}}, {json})});
  THALWEG_TRY_STATUS(write_files(files));
  if (arguments.json) {
    std::cout << json.dump(2) << '\n';
  } else {
    print(result, scenario);
  }
  return result.finished ? 0 : kExitNo;
}

Result<int> run_sweep(const Arguments& arguments, const std::string& text, const Settings& settings,
                      const std::vector<Axis>& axes) {
  if (!arguments.flows.empty()) return Error("--flows is for a single run, not for a sweep");
  if (arguments.pictures.any()) {
    return Error("--trace and --plot are for a single run, not for a sweep");
  }
  THALWEG_TRY(const std::vector<SweepPoint> points, points_of(axes));
  const ScenarioLoaders loaders = scenario_loaders(arguments.models);
  const auto read_point = [&](std::size_t i) {
    Settings all = settings;
    all.insert(all.end(), points[i].settings.begin(), points[i].settings.end());
    return scenario_from_yaml(text, arguments.scenario, loaders, all);
  };
  // Bad input is found before the first point runs.
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (const auto scenario = read_point(i); !scenario.ok()) return scenario.error();
  }
  THALWEG_TRY(const auto done,
              run_points(points.size(),
                         {.at_once = arguments.at_once,
                          .name = [&](std::size_t i) { return to_string(points[i].settings); }},
                         [&](std::size_t i) -> Result<std::string> {
                           THALWEG_TRY(const Scenario scenario, read_point(i));
                           THALWEG_TRY(const ScenarioResult result, run_checked(scenario, {}));
                           return to_json(result, scenario).dump();
                         }));
  if (!done) return 0;
  std::vector<Json> results;
  for (const std::string& result : done->texts) results.push_back(Json::parse(result));
  if (!arguments.csv.empty()) {
    THALWEG_TRY_STATUS(write_files({{arguments.csv, points_csv(axes, points, results)}}));
  }
  if (arguments.json) {
    std::cout << sweep_json(axes, points, results).dump(2) << '\n';
  } else {
    std::cout << format_table(sweep_table(axes, points, results));
    std::cout << fmt::format("\n{} points; the largest took {} MiB of memory\n", points.size(),
                             done->peak_memory_kib / 1024);
  }
  const bool all = std::ranges::all_of(results, [](const Json& r) { return r["finished"]; });
  return all ? 0 : kExitNo;
}

Result<int> run(const Arguments& arguments) {
  Settings settings;
  for (const std::string& text : arguments.settings) {
    const Result<Setting> setting = parse_setting(text);
    if (!setting.ok()) return setting.error().within("--set");
    settings.push_back(*setting);
  }
  if (arguments.at_once < 0) return Error("-j: must be 0 (all cores) or above");
  THALWEG_TRY(const std::string text, read_file(arguments.scenario));
  THALWEG_TRY(
      const Scenario scenario,
      scenario_from_yaml(text, arguments.scenario, scenario_loaders(arguments.models), settings));
  std::vector<Axis> axes = scenario.sweep;
  for (const std::string& given : arguments.axes) {
    Result<Axis> axis = parse_axis(given);
    if (!axis.ok()) return axis.error().within("--sweep");
    put_axis(axes, std::move(*axis));
  }
  if (axes.empty()) return run_one(arguments, scenario);
  return run_sweep(arguments, text, settings, axes);
}

}  // namespace

void add_sim_run(CLI::App& sim) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& app =
      *sim.add_subcommand("run", "run a scenario; exit code 1 if it did not finish by its 'until'");
  app.add_option("scenario", arguments->scenario, "a scenario file (docs/scenario-format.md)")
      ->required();
  app.add_option("--set", arguments->settings,
                 "key=value: a variable of the scenario or a path in it")
      ->type_name("K=V")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--sweep", arguments->axes, "key=[value, value]: every value in turn")
      ->type_name("K=[V,V]")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("-j,--jobs", arguments->at_once, "points of a sweep at once (0: all cores)");
  app.add_option("--models", arguments->models, "folder of the layer tables");
  app.add_option("--flows", arguments->flows, "write every flow that ended, as CSV");
  app.add_option("--csv", arguments->csv, "write the result, one line a point, as CSV");
  add_picture_options(app, arguments->pictures);
  app.add_flag("--json", arguments->json, "print a JSON object");
  on_run(app, [arguments] { return run(*arguments); });
}

}  // namespace thalweg
