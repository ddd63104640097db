// `thalweg bench switch`: how many packets a second one core aggregates.
#pragma once

#include <CLI/CLI.hpp>

namespace thalweg {

void add_bench_switch(CLI::App& bench);

}  // namespace thalweg
