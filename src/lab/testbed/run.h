// Runs programs on the hosts of a testbed that is up.
#pragma once

#include <string>
#include <vector>

#include <thalweg/result.h>

namespace thalweg::lab {

// The options of `thalweg testbed run`, as they were given.
struct TestbedRunOptions {
  std::string name;                    // of the testbed
  std::string hosts;                   // as "0-3,6"; empty: all
  std::vector<std::string> variables;  // NAME or NAME=value, for all ranks
  std::string timeout;                 // of the job; empty: none
  std::string grace = "5s";            // between asking ranks to end and killing them
  bool no_prefix = false;              // without [rank] before lines of output
  bool keep_going = false;             // a rank that fails does not end the others
};

// Starts a job with one rank per host, each of which runs `command`, and waits for its end. Returns
// the exit code of the job, as Supervisor::run() does. Moves this process into the namespaces of
// the first host; to be called before there are threads.
[[nodiscard]] Result<int> run_on_testbed(const TestbedRunOptions& options,
                                         const std::vector<std::string>& command);

// Replaces this process by `command` on a host, which `host` names or numbers. Returns only if that
// fails.
[[nodiscard]] Status exec_on_testbed(const std::string& name, const std::string& host,
                                     std::vector<std::string> command);

}  // namespace thalweg::lab
