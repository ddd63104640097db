// Runs the points of a sweep, for `thalweg sim run` and `thalweg reproduce`.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/scenario/result_json.h"
#include "sim/scenario/scenario_run.h"
#include "sim/scenario/sweep.h"

namespace thalweg::lab {

// The options of both commands, as they were given.
struct SweepArguments {
  std::vector<std::string> settings;  // key=value
  int at_once = 0;                    // points that run at a time; 0: one per core
};
// The settings of --set. A bad value of -j is an error, too.
Result<sim::Settings> parse_settings(const SweepArguments& arguments);

// A sweep to run.
struct Sweep {
  std::string name = {};  // for errors, if there are several sweeps
  std::vector<sim::SweepPoint> points = {};
  sim::Settings settings = {};  // for all points; those of a point come after them
  // Reads the scenario with these settings.
  std::function<Result<sim::Scenario>(const sim::Settings&)> read = {};

  [[nodiscard]] std::string name_of(std::size_t point) const;
  [[nodiscard]] Result<sim::Scenario> read_point(std::size_t point) const;
};

struct SweepResult {
  std::vector<sim::Json> results;  // [point]
  long peak_memory_kib = 0;        // the most that one point took

  // "4 points; the largest took 12 MiB of memory"
  [[nodiscard]] std::string summary() const;
};
// Whether the run of this result finished by its scenario's `until`.
[[nodiscard]] bool finished(const sim::Json& result);

// Reads every point, so that bad input is found before the first one runs.
Status check_points(const Sweep& sweep);
// Runs all points. Returns nothing on the ranks of an MPI launcher that are not the first
// (lab/sweep/process_pool.h).
Result<std::optional<SweepResult>> run_sweep(const Sweep& sweep, int at_once);

// Runs one scenario. It is an error if the simulator's checkers complain. `recorder` may be null.
// `threads`: how many parts of the network are simulated side by side, where the scenario allows
// it, by as many threads if there are cores for them. The result is the same for any number.
Result<sim::ScenarioResult> run_checked(const sim::Scenario& scenario,
                                        const sim::RunProgress& progress,
                                        sim::RunRecorder* recorder = nullptr,
                                        std::size_t threads = 1);

}  // namespace thalweg::lab
