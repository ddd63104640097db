// The ranks of a job: the variables in their environment, and the message that describes the ranks
// of another host to the agent that starts them there.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "launch/cores.h"
#include "launch/supervisor.h"
#include "wire/wire.h"

namespace thalweg::launch {

using Variables = std::map<std::string, std::string>;

// What the ranks of a job need to meet.
struct RunMeeting {
  int size = 1;
  std::string store = {};  // "host:port" of the store, which the launcher runs
  wire::JobToken token = 0;
  std::string master_host = {};  // host of rank 0, for programs that use PyTorch's own rendezvous
  int master_port = 0;
};
// The variables that environment_from() (net/job/environment.h) and torch.distributed read.
Variables variables_of(const RunMeeting& meeting);

// Parses arguments of the form NAME=value, or NAME for the value in this process.
Result<Variables> given_variables(const std::vector<std::string>& given);
// Parses a duration above 0. The error names the option.
Result<Duration> positive_duration(const char* option, const std::string& text);
// A TCP port of this network namespace that is free at the moment.
Result<int> free_port();

// The ranks of one host.
struct HostRanks {
  std::string folder = {};  // working directory
  std::vector<std::string> command = {};
  Variables variables = {};  // the same for all ranks
  int first = 0;             // the first rank
  int count = 1;
  bool prefix = true;  // lines begin with "[rank] "
  bool keep_going = false;
  Duration grace = {};
  std::optional<Binding> bind = {};  // none: kCore if the host has a core for each rank
  bool operator==(const HostRanks&) const = default;
};
// The processes of the ranks, with the cores of this host that each is bound to. It is an error if
// the ranks are to be bound and this process may use fewer cores than there are ranks.
Result<std::vector<SupervisedProcess>> processes_of(const HostRanks& ranks);
SupervisorOptions options_of(const HostRanks& ranks);

// One line of JSON, sent to the agent's standard input.
std::string to_agent_line(const HostRanks& ranks);
Result<HostRanks> from_agent_line(std::string_view line);

}  // namespace thalweg::launch
