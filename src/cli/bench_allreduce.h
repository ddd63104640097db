// `thalweg bench allreduce`: our collectives beside Gloo and Open MPI.
#pragma once

#include <CLI/CLI.hpp>

namespace thalweg {

void add_bench_allreduce(CLI::App& bench);
// One rank of it, which the benchmark starts; not for users.
void add_bench_allreduce_rank(CLI::App& bench);

}  // namespace thalweg
