#include "cli/sim_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/scenario_files.h"
#include "cli/sim_pictures.h"
#include "cli/sim_summary.h"
#include "cli/sim_sweep.h"
#include "cli/sweep_output.h"
#include "sim/result_json.h"

namespace thalweg {
namespace {

struct Arguments {
  std::string scenario;
  std::string models;
  SweepArguments sweep;
  std::vector<std::string> axes;
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
  for (const std::string& failure : r.failures) std::cout << "failed: " << failure << '\n';
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

Result<int> run_all(const Arguments& arguments, const Sweep& sweep, const std::vector<Axis>& axes) {
  if (!arguments.flows.empty()) return Error("--flows is for a single run, not for a sweep");
  if (arguments.pictures.any()) {
    return Error("--trace and --plot are for a single run, not for a sweep");
  }
  THALWEG_TRY_STATUS(check_points(sweep));
  THALWEG_TRY(const auto done, run_sweep(sweep, arguments.sweep.at_once));
  if (!done) return 0;
  if (!arguments.csv.empty()) {
    THALWEG_TRY_STATUS(
        write_files({{arguments.csv, points_csv(axes, sweep.points, done->results)}}));
  }
  if (arguments.json) {
    std::cout << sweep_json(axes, sweep.points, done->results).dump(2) << '\n';
  } else {
    std::cout << format_table(sweep_table(axes, sweep.points, done->results));
    std::cout << '\n' << done->summary() << '\n';
  }
  return std::ranges::all_of(done->results, finished) ? 0 : kExitNo;
}

Result<int> run(const Arguments& arguments) {
  Sweep sweep;
  THALWEG_TRY(sweep.settings, parse_settings(arguments.sweep));
  THALWEG_TRY(const std::string text, read_file(arguments.scenario));
  sweep.read = [&](const Settings& settings) {
    return scenario_from_yaml(text, arguments.scenario, scenario_loaders(arguments.models),
                              settings);
  };
  THALWEG_TRY(const Scenario scenario, sweep.read(sweep.settings));
  std::vector<Axis> axes = scenario.sweep;
  for (const std::string& given : arguments.axes) {
    Result<Axis> axis = parse_axis(given);
    if (!axis.ok()) return axis.error().within("--sweep");
    put_axis(axes, std::move(*axis));
  }
  if (axes.empty()) return run_one(arguments, scenario);
  THALWEG_TRY(sweep.points, points_of(axes));
  return run_all(arguments, sweep, axes);
}

}  // namespace

void add_sim_run(CLI::App& sim) {
  auto arguments = std::make_shared<Arguments>();
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
  add_picture_options(app, arguments->pictures);
  app.add_flag("--json", arguments->json, "print a JSON object");
  on_run(app, [arguments] { return run(*arguments); });
}

}  // namespace thalweg
