#pragma once

#include <CLI/CLI.hpp>

namespace thalweg {

void add_reproduce(CLI::App& app);

}  // namespace thalweg
