// What `sim run` and `reproduce` share: their settings, and running the points of a sweep.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/result_json.h"
#include "sim/scenario_run.h"
#include "sim/sweep.h"

namespace thalweg {

struct SweepArguments {
  std::vector<std::string> settings;  // key=value
  int at_once = 0;                    // points; 0: as many as there are cores
};
// --set, with this help, and -j.
void add_sweep_options(CLI::App& app, SweepArguments& arguments, const std::string& set_help);
// Those of --set. Errors for -j too.
Result<Settings> parse_settings(const SweepArguments& arguments);

// A sweep as it is to be run.
struct Sweep {
  std::string name = {};  // for errors, if there are several
  std::vector<SweepPoint> points = {};
  Settings settings = {};  // come before those of each point
  std::function<Result<Scenario>(const Settings&)> read = {};

  [[nodiscard]] std::string name_of(std::size_t point) const;
  [[nodiscard]] Result<Scenario> read_point(std::size_t point) const;
};

struct SweepResult {
  std::vector<Json> results;  // [point]
  long peak_memory_kib = 0;   // the most that one point took

  // "4 points; the largest took 12 MiB of memory"
  [[nodiscard]] std::string summary() const;
};
[[nodiscard]] bool finished(const Json& result);

// Reads every point, so that bad input is found before the first one runs.
Status check_points(const Sweep& sweep);
// Nothing on the ranks of an MPI launcher that are not the first (cli/points.h).
Result<std::optional<SweepResult>> run_sweep(const Sweep& sweep, int at_once);

// An error too if the simulator's checkers complain.
Result<ScenarioResult> run_checked(const Scenario& scenario,
                                   const std::function<void(Time now)>& progress,
                                   RunRecorder* recorder = nullptr);

}  // namespace thalweg
