// Starts the ranks of one job and waits for their end: what `thalweg run` does. Each function
// returns the exit code of the job, as Supervisor::run() does, and must be called before there are
// threads.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "launch/hosts.h"
#include "launch/job.h"

namespace thalweg::launch {

// Runs `ranks.count` ranks on this host. No `timeout`: the job may take any time.
[[nodiscard]] Result<int> run_here(HostRanks ranks, const std::optional<Duration>& timeout);

// How other hosts are reached.
struct RemoteHosts {
  std::vector<RunHost> hosts;  // at least one
  std::string ssh;             // the command that reaches a host: a program and its arguments
  std::string program;         // path of this program there; empty: as here
  std::string address;         // by which the hosts reach this one; empty: found out
};

// Runs one rank on every slot of the hosts, in the order of the hosts. An agent on each host
// (run_agent) starts the ranks there. `ranks` says what they run; its `count` is not used.
[[nodiscard]] Result<int> run_on_hosts(const RemoteHosts& remote, HostRanks ranks,
                                       const std::optional<Duration>& timeout);

// The agent: reads the description of its host's ranks from standard input and runs them, for the
// launcher at the other end of standard input and output. The ranks end when standard input does.
[[nodiscard]] Result<int> run_agent();

}  // namespace thalweg::launch
