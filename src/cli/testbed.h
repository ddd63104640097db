// `thalweg testbed`: a network of this machine's own, for any program (docs/testbed.md).
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace thalweg {

// up
void add_testbed_up(CLI::App& testbed);
// down, list, stats, set, restart, pause, resume, stall, capture
void add_testbed_control(CLI::App& testbed);
// run, exec. `command`: what take_rank_command() took.
void add_testbed_run(CLI::App& testbed, const std::vector<std::string>& command);

// The option --name of all of them.
void add_testbed_name(CLI::App& app, std::string& name);

}  // namespace thalweg
