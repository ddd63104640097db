// The experiments of `thalweg reproduce e2e`: they are trained over testbeds by a Python script.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "lab/reproduce/experiment_files.h"

namespace thalweg::lab {

struct LiveOptions {
  bool quick = false;
  bool json = false;
  std::optional<std::string> output;  // folder for the plots; none: draw nothing
};

// Replaces this process by the script, which prints what it does and takes its testbeds down when
// it is ended. Returns only if the script cannot be started.
[[nodiscard]] Error run_live_experiments(const std::vector<ExperimentFile>& experiments,
                                         const LiveOptions& options);

}  // namespace thalweg::lab
