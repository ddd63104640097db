// `thalweg switch`: the software switch.
#pragma once

#include <CLI/CLI.hpp>

namespace thalweg {

void add_switch(CLI::App& app);

}  // namespace thalweg
