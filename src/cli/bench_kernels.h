// `thalweg bench kernels`: how near the reduction kernels come to what memory allows.
#pragma once

#include <CLI/CLI.hpp>

namespace thalweg {

// Registers `kernels` as a subcommand of `thalweg bench`.
void add_bench_kernels(CLI::App& bench);

}  // namespace thalweg
