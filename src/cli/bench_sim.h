// `thalweg bench sim`: packet-hops a second of the simulator on one core, and ns-3's on the same
// scenario in the same run.
#pragma once

#include <CLI/CLI.hpp>

namespace thalweg {

// Registers `sim` as a subcommand of `thalweg bench`.
void add_bench_sim(CLI::App& bench);

}  // namespace thalweg
