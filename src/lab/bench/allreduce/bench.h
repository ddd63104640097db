// Runs `thalweg bench allreduce`: starts the ranks of all libraries and measures them in turn.
//
// Every library's ranks are started once and live side by side; only one library works at a time. A
// turn goes through all sizes, and at each size through all libraries. Each time another library
// begins, so that other load on the machine affects all of them alike.
#pragma once

#include <string>

#include <thalweg/result.h>

#include "lab/bench/allreduce/report.h"
#include "lab/bench/allreduce/settings.h"
#include "lab/emulation/emulated_network.h"

namespace thalweg::lab::allreduce {

// Measures all libraries that `options` names, from the start of their processes to their end.
// `settings` are the checked options. `network`: where the ranks run, or null for the loopback
// device. `congestion_control`: of all TCP on the network, or empty for the system's; a name
// requires a network. To be called before there are threads.
[[nodiscard]] Result<Report> measure_all(const Options& options, const Settings& settings,
                                         const EmulatedNetwork* network,
                                         const std::string& congestion_control);

}  // namespace thalweg::lab::allreduce
