// --trace and --plot of a simulated run.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "sim/recorder.h"
#include "sim/scenario_run.h"

namespace thalweg {

struct PictureArguments {
  std::string trace;
  std::string plot;

  [[nodiscard]] bool any() const { return !trace.empty() || !plot.empty(); }
};

void add_picture_options(CLI::App& app, PictureArguments& arguments);

// Whether they could be written, for asking before the run.
Status check_pictures(const PictureArguments& arguments);

// What has to watch the run for them; nothing if none is asked for.
std::unique_ptr<RunRecorder> recorder_for(const PictureArguments& arguments,
                                          const Scenario& scenario);

// Those asked for. If the trace had to be cut, says so on stderr.
Result<std::vector<OutputFile>> make_pictures(const PictureArguments& arguments,
                                              const Scenario& scenario,
                                              const ScenarioResult& result, RunRecorder& recorder);

}  // namespace thalweg
