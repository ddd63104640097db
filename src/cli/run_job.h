// The ranks of a job: what their environment says, and how those of another host are described to
// the agent that starts them there.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "cli/run_supervisor.h"
#include "wire/wire.h"

namespace thalweg {

using Variables = std::map<std::string, std::string>;

// Where the ranks of a job meet.
struct RunMeeting {
  int size = 1;
  std::string store = {};  // "host:port", run by the launcher
  JobToken token = 0;
  std::string master_host = {};  // of rank 0, for programs that use PyTorch's own rendezvous
  int master_port = 0;
};
// As environment_from() (net/bootstrap) and torch.distributed read it.
Variables variables_of(const RunMeeting& meeting);

// Arguments as NAME (as it is here) or NAME=value.
Result<Variables> given_variables(const std::vector<std::string>& given);
// The error names the option.
Result<Duration> positive_duration(const char* option, const std::string& text);
// A TCP port of this network namespace that is free now.
Result<int> free_port();

// Ranks of one host.
struct HostRanks {
  std::string folder = {};  // to run in
  std::vector<std::string> command = {};
  Variables variables = {};  // of all
  int first = 0;             // rank
  int count = 1;
  bool prefix = true;  // lines begin with "[rank] "
  bool keep_going = false;
  Duration grace = {};
  bool operator==(const HostRanks&) const = default;
};
std::vector<SupervisedProcess> processes_of(const HostRanks& ranks);
SupervisorOptions options_of(const HostRanks& ranks);

// One line of JSON, for the agent's standard input.
std::string to_agent_line(const HostRanks& ranks);
Result<HostRanks> from_agent_line(std::string_view line);

}  // namespace thalweg
