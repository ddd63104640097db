// `thalweg trace replay FILE`: runs a recorded connection again, without sockets.
#pragma once

#include <CLI/CLI.hpp>

namespace thalweg {

// Registers `replay` as a subcommand of `thalweg trace`.
void add_trace_replay(CLI::App& trace);

}  // namespace thalweg
