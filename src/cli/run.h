// `thalweg run`: a launcher for one host, and for several over ssh.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace thalweg {

// What follows "--" in the arguments of `run`; it is cut off them. CLI11 would take it for
// arguments of ours.
std::vector<std::string> take_rank_command(int& argc, char** argv);

// `command`: what take_rank_command() took; if that is nothing, the first word that is no option
// begins the command.
void add_run(CLI::App& program, const std::vector<std::string>& command);

}  // namespace thalweg
