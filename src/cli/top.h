// thalweg top: what the ranks of a job are doing, from their metrics.
#pragma once

#include <CLI/CLI.hpp>

namespace thalweg {

void add_top(CLI::App& app);

}  // namespace thalweg
