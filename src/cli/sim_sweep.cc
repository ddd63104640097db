#include "cli/sim_sweep.h"

#include <fmt/format.h>

#include "cli/points.h"

namespace thalweg {

void add_sweep_options(CLI::App& app, SweepArguments& arguments, const std::string& set_help) {
  app.add_option("--set", arguments.settings, set_help)
      ->type_name("K=V")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("-j,--jobs", arguments.at_once, "points of a sweep at once (0: all cores)");
}

Result<Settings> parse_settings(const SweepArguments& arguments) {
  if (arguments.at_once < 0) {
    return Error(fmt::format("-j: {}: must be 0 (all cores) or above", arguments.at_once));
  }
  Settings settings;
  for (const std::string& text : arguments.settings) {
    const Result<Setting> setting = parse_setting(text);
    if (!setting.ok()) return setting.error().within("--set");
    settings.push_back(*setting);
  }
  return settings;
}

std::string Sweep::name_of(std::size_t point) const {
  const std::string own = to_string(points[point].settings);
  return name.empty() ? own : own.empty() ? name : name + " at " + own;
}

Result<Scenario> Sweep::read_point(std::size_t point) const {
  Settings all = settings;
  const Settings& own = points[point].settings;
  all.insert(all.end(), own.begin(), own.end());
  return read(all);
}

std::string SweepResult::summary() const {
  return fmt::format("{} points; the largest took {} MiB of memory", results.size(),
                     peak_memory_kib / 1024);
}

bool finished(const Json& result) { return result["finished"].get<bool>(); }

Status check_points(const Sweep& sweep) {
  for (std::size_t i = 0; i < sweep.points.size(); ++i) {
    const Result<Scenario> scenario = sweep.read_point(i);
    if (!scenario.ok()) return scenario.error().within(sweep.name_of(i));
  }
  return ok_status();
}

Result<std::optional<SweepResult>> run_sweep(const Sweep& sweep, int at_once) {
  const auto run_point = [&](std::size_t i) -> Result<std::string> {
    THALWEG_TRY(const Scenario scenario, sweep.read_point(i));
    THALWEG_TRY(const ScenarioResult result, run_checked(scenario, {}));
    return to_json(result, scenario).dump();
  };
  THALWEG_TRY(const auto done, run_points(sweep.points.size(),
                                          {.at_once = at_once,
                                           .name = [&](std::size_t i) { return sweep.name_of(i); }},
                                          run_point));
  if (!done) return std::optional<SweepResult>();
  SweepResult result{.results = {}, .peak_memory_kib = done->peak_memory_kib};
  for (const std::string& text : done->texts) result.results.push_back(Json::parse(text));
  return std::optional(std::move(result));
}

Result<ScenarioResult> run_checked(const Scenario& scenario,
                                   const std::function<void(Time now)>& progress,
                                   RunRecorder* recorder) {
  THALWEG_TRY(ScenarioResult result, run_scenario(scenario, progress, recorder));
  if (!result.violations.empty()) {
    return Error("a checker of the simulator complains, the result cannot be trusted: " +
                 result.violations.front());
  }
  return result;
}

}  // namespace thalweg
