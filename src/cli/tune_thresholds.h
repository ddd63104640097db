// `thalweg tune thresholds`: where switches should start to drop, for a model and a network.
#pragma once

#include <CLI/CLI.hpp>

namespace thalweg {

void add_tune_thresholds(CLI::App& tune);

}  // namespace thalweg
