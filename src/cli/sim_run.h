// `thalweg sim run`: a scenario file in the packet-level simulator.
#pragma once

#include <CLI/CLI.hpp>

namespace thalweg {

// Registers `run` as a subcommand of `thalweg sim`.
void add_sim_run(CLI::App& sim);

}  // namespace thalweg
