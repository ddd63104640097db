// The options that `thalweg sim run` and `thalweg reproduce` share.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "lab/figures/sim_pictures.h"
#include "lab/sweep/sim_sweep.h"

namespace thalweg::cli {

// Adds --set, with this help, and -j.
void add_sweep_options(CLI::App& app, lab::SweepArguments& arguments, const std::string& set_help);
// Adds --trace and --plot.
void add_picture_options(CLI::App& app, lab::PictureArguments& arguments);

}  // namespace thalweg::cli
