#include "cli/sim_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "sim/scenario_run.h"

namespace thalweg {
namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  std::string scenario;
  std::string models = "models";
  std::string flows;
  bool json = false;
};

// A path, or the name of a table in the folder of models.
Result<ModelTable> load_model(const std::string& name, const std::string& folder) {
  const std::string path = name.ends_with(".yaml") ? name : folder + "/" + name + ".yaml";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return Error(
        fmt::format("'{}' is not a model: there is no {} (--models names the folder)", name, path));
  }
  THALWEG_TRY(const std::string text, read_file(path));
  return model_from_yaml(text, path);
}

Json percentiles(const Histogram& times) {
  if (times.count() == 0) return {{"count", 0}};
  return {{"count", times.count()},          {"mean", times.mean()},
          {"p50", times.percentile(50)},     {"p99", times.percentile(99)},
          {"p99.9", times.percentile(99.9)}, {"max", times.max()}};
}

Json to_json(const ScenarioResult& r, const Scenario& scenario) {
  Json jobs = Json::array();
  for (const JobResult& job : r.jobs) {
    Json iterations = Json::array();
    for (const IterationResult& i : job.iterations) iterations.push_back(i.duration().ms());
    jobs.push_back({{"name", job.name},
                    {"done", job.done},
                    {"iterations_ms", iterations},
                    {"samples_per_s", job.samples_per_second}});
  }
  const NetworkCounters& c = r.counters;
  const auto busiest = std::ranges::max_element(r.arc_utilisation);
  return {{"scenario", scenario.name},
          {"transport", scenario.transport->describe()},
          {"finished", r.finished},
          {"simulated_ms", r.end.since_start().ms()},
          {"jobs", jobs},
          {"flow_completion_ms", percentiles(completion_times_ms(r.flows))},
          {"flows_unfinished", r.flows_unfinished},
          {"packets_sent", c.packets_sent},
          {"packet_hops", c.packet_hops},
          {"drops_full", c.drops_full},
          {"drops_selective", c.drops_selective},
          {"drops_fault", c.drops_fault},
          {"marks", c.marks},
          {"peak_packets", c.peak_packets},
          {"highest_utilisation", busiest == r.arc_utilisation.end() ? 0.0 : *busiest}};
}

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
  const NetworkCounters& c = r.counters;
  std::cout << fmt::format(
      "{} flows unfinished; {} packets, {} lost to full buffers, {} selectively, {} to faults; {} "
      "marked\n",
      r.flows_unfinished, c.packets_sent, c.drops_full, c.drops_selective, c.drops_fault, c.marks);
}

std::string flows_csv(const ScenarioResult& r, const Topology& topology) {
  std::string text =
      "from,to,bytes,job,start_us,completion_us,oracle_us,retransmissions,timeouts\n";
  for (const FlowResult& f : r.flows) {
    text += fmt::format("{},{},{},{},{:.6f},{:.6f},{:.6f},{},{}\n",
                        topology.node(topology.host(f.spec.source)).name,
                        topology.node(topology.host(f.spec.target)).name, f.spec.bytes, f.spec.tag,
                        f.start.since_start().us(), f.completion_time().us(), f.oracle.us(),
                        f.counters.retransmissions, f.counters.timeouts);
  }
  return text;
}

Result<int> run(const Arguments& arguments) {
  THALWEG_TRY(const std::string text, read_file(arguments.scenario));
  THALWEG_TRY(const Scenario scenario,
              scenario_from_yaml(text, arguments.scenario,
                                 {.topology = load_topology, .model = [&](const std::string& name) {
                                    return load_model(name, arguments.models);
                                  }}));
  ScenarioResult result;
  {
    Progress progress;
    THALWEG_TRY(result, run_scenario(scenario, [&](Time now) {
                  progress.show(fmt::format("{} simulated", to_human(now.since_start())));
                }));
  }
  if (!result.violations.empty()) {
    return Error("a checker of the simulator complains, the result cannot be trusted: " +
                 result.violations.front());
  }
  if (!arguments.flows.empty()) {
    THALWEG_TRY_STATUS(write_files({{arguments.flows, flows_csv(result, *scenario.topology)}}));
  }
  if (arguments.json) {
    std::cout << to_json(result, scenario).dump(2) << '\n';
  } else {
    print(result, scenario);
  }
  return result.finished ? 0 : kExitNo;
}

}  // namespace

void add_sim_run(CLI::App& sim) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& app =
      *sim.add_subcommand("run", "run a scenario; exit code 1 if it did not finish by its 'until'");
  app.add_option("scenario", arguments->scenario, "a scenario file (docs/scenario-format.md)")
      ->required();
  app.add_option("--models", arguments->models, "folder of the layer tables");
  app.add_option("--flows", arguments->flows, "write every flow that ended, as CSV");
  app.add_flag("--json", arguments->json, "print a JSON object");
  on_run(app, [arguments] { return run(*arguments); });
}

}  // namespace thalweg
