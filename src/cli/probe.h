// thalweg probe: the network between the ranks of a job, measured, as a topology.
#pragma once

#include <CLI/CLI.hpp>

namespace thalweg {

void add_probe(CLI::App& app);

}  // namespace thalweg
