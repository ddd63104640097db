// The pictures of a simulated run: --trace and --plot of `thalweg sim run`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lab/files.h"
#include "sim/observe/recorder.h"
#include "sim/scenario/scenario_run.h"

namespace thalweg::lab {

// The paths as they were given; empty: no such picture.
struct PictureArguments {
  std::string trace;
  std::string plot;

  [[nodiscard]] bool any() const { return !trace.empty() || !plot.empty(); }
};

// Checks that the pictures can be written. To be called before the run.
Status check_pictures(const PictureArguments& arguments);

// The recorder that must watch the run; null if no picture is asked for.
std::unique_ptr<sim::RunRecorder> recorder_for(const PictureArguments& arguments,
                                               const sim::Scenario& scenario);

// The pictures that are asked for. If the trace had to be cut off, prints that to stderr.
Result<std::vector<OutputFile>> make_pictures(const PictureArguments& arguments,
                                              const sim::Scenario& scenario,
                                              const sim::ScenarioResult& result,
                                              sim::RunRecorder& recorder);

}  // namespace thalweg::lab
