// `thalweg bench sim`: how many packet-hops a second the simulator does on one core.
#pragma once

#include <CLI/CLI.hpp>

namespace thalweg {

// Registers `sim` as a subcommand of `thalweg bench`.
void add_bench_sim(CLI::App& bench);

}  // namespace thalweg
