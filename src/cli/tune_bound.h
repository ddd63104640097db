// `thalweg tune bound`: how much of a model's gradients may be lost.
#pragma once

#include <CLI/CLI.hpp>

namespace thalweg {

void add_tune_bound(CLI::App& tune);

}  // namespace thalweg
