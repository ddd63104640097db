// `thalweg bench transport`: DLCP on real sockets, beside raw UDP and kernel TCP in the same run.
#pragma once

#include <CLI/CLI.hpp>

namespace thalweg {

// Registers `transport` as a subcommand of `thalweg bench`.
void add_bench_transport(CLI::App& bench);

}  // namespace thalweg
