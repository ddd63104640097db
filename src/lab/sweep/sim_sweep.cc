#include "lab/sweep/sim_sweep.h"

#include <fmt/core.h>

#include <algorithm>
#include <thread>

#include "lab/sweep/process_pool.h"
#include "lab/sweep/thread_crew.h"

namespace thalweg::lab {

Result<sim::Settings> parse_settings(const SweepArguments& arguments) {
  if (arguments.at_once < 0) {
    return Error(fmt::format("-j: {}: must be 0 (all cores) or above", arguments.at_once));
  }
  sim::Settings settings;
  for (const std::string& text : arguments.settings) {
    const Result<sim::Setting> setting = sim::parse_setting(text);
    if (!setting.ok()) return setting.error().within("--set");
    settings.push_back(*setting);
  }
  return settings;
}

std::string Sweep::name_of(std::size_t point) const {
  const std::string own = sim::to_string(points[point].settings);
  return name.empty() ? own : own.empty() ? name : name + " at " + own;
}

Result<sim::Scenario> Sweep::read_point(std::size_t point) const {
  sim::Settings all = settings;
  const sim::Settings& own = points[point].settings;
  all.insert(all.end(), own.begin(), own.end());
  return read(all);
}

std::string SweepResult::summary() const {
  return fmt::format("{} points; the largest took {} MiB of memory", results.size(),
                     peak_memory_kib / 1024);
}

bool finished(const sim::Json& result) { return result["finished"].get<bool>(); }

Status check_points(const Sweep& sweep) {
  for (std::size_t i = 0; i < sweep.points.size(); ++i) {
    const Result<sim::Scenario> scenario = sweep.read_point(i);
    if (!scenario.ok()) return scenario.error().within(sweep.name_of(i));
  }
  return ok_status();
}

Result<std::optional<SweepResult>> run_sweep(const Sweep& sweep, int at_once) {
  const auto run_point = [&](std::size_t i) -> Result<std::string> {
    THALWEG_TRY(const sim::Scenario scenario, sweep.read_point(i));
    THALWEG_TRY(const sim::ScenarioResult result, run_checked(scenario, {}));
    return sim::to_json(result, scenario).dump();
  };
  THALWEG_TRY(const auto done,
              run_in_processes(sweep.points.size(),
                               {.at_once = at_once,
                                .name = [&](std::size_t i) { return sweep.name_of(i); },
                                .title = sweep.name},
                               run_point));
  if (!done) return std::optional<SweepResult>();
  SweepResult result{.results = {}, .peak_memory_kib = done->peak_memory_kib};
  for (const std::string& text : done->texts) result.results.push_back(sim::Json::parse(text));
  return std::optional(std::move(result));
}

Result<sim::ScenarioResult> run_checked(const sim::Scenario& scenario,
                                        const sim::RunProgress& progress,
                                        sim::RunRecorder* recorder, std::size_t threads) {
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  ThreadCrew crew(std::min(threads, cores));
  THALWEG_TRY(sim::ScenarioResult result,
              sim::run_scenario(scenario, progress, recorder, {.shards = threads, .crew = &crew}));
  if (!result.violations.empty()) {
    return Error("a checker of the simulator complains, the result cannot be trusted: " +
                 result.violations.front());
  }
  return result;
}

}  // namespace thalweg::lab
