// `thalweg man` and `thalweg completion`: what the subcommands and their options are, for man(1)
// and for shells, from the program itself.
#pragma once

#include <CLI/CLI.hpp>

namespace thalweg {

// Registers both as subcommands; they tell of all that `program` has when they run.
void add_manual(CLI::App& program);

}  // namespace thalweg
