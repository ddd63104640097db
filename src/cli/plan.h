// `thalweg plan`: one function a subcommand, each in its own file.
#pragma once

#include <CLI/CLI.hpp>

namespace thalweg {

void add_plan_show(CLI::App& plan);
void add_plan_compare(CLI::App& plan);
void add_plan_best(CLI::App& plan);
void add_plan_verify(CLI::App& plan);
void add_plan_schemes(CLI::App& plan);
void add_plan_mixing(CLI::App& plan);

}  // namespace thalweg
