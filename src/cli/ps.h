// `thalweg ps`: the parameter server.
#pragma once

#include <CLI/CLI.hpp>

namespace thalweg {

void add_ps(CLI::App& app);

}  // namespace thalweg
