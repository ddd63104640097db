// `thalweg job`: the jobs of a switch.
#pragma once

#include <CLI/CLI.hpp>

namespace thalweg {

void add_job(CLI::App& app);

}  // namespace thalweg
