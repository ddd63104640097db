// Runs processes that live and end together: the ranks of a job on this host, or the programs that
// start ranks on other hosts.
//
// Invariants:
// 1. Each process leads a process group of its own. When the process ends, the rest of its group is
//    killed.
// 2. When one process fails, or the supervisor is told to stop, the others are asked to end, and
//    killed after a grace period. With keep_going a failure does not affect the others.
// 3. No process outlives the supervisor, however that ends: a guardian process notices the end of
//    the supervisor and kills what is left.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "launch/guardian.h"
#include "net/io/fd.h"

namespace thalweg::launch {

struct SupervisedProcess {
  std::string name;  // in messages: "rank 3"
  std::vector<std::string> command;
  std::vector<std::string> environment = {};  // NAME=value; replaces our variable of that name
  std::string prefix = {};                    // put before every line that it prints
  // Written to its standard input, which then stays open; closing it asks the process to end. None:
  // its standard input is empty, and a signal asks it to end.
  std::optional<std::string> input = {};
  std::vector<int> cores = {};  // that it may run on; empty: those of this process
};

struct SupervisorOptions {
  bool keep_going = false;
  // True: processes write to our own outputs directly. False: their output is passed on in whole
  // lines.
  bool raw_output = false;
  Duration grace = Duration::milliseconds(5'000);
  std::optional<Duration> timeout = {};
  // When this descriptor reaches its end, all processes are asked to end; -1: none.
  int stop_at_end_of = -1;
};

// Exit code of a job that took longer than its timeout, the same as that of timeout(1).
inline constexpr int kExitTimeout = 124;

class Supervisor {
 public:
  // Starts the guardian and takes over SIGINT, SIGTERM, SIGHUP and SIGCHLD of this process. Call it
  // before there are threads.
  static Result<Supervisor> prepare();

  // Runs until all processes have ended. Returns the exit code of the first that failed (128 +
  // signal if a signal ended it), 128 + the signal that we got, kExitTimeout, or 0.
  Result<int> run(const std::vector<SupervisedProcess>& processes,
                  const SupervisorOptions& options);

 private:
  class Job;
  Supervisor(std::unique_ptr<RunGuardian> guardian, net::Fd signals)
      : guardian_(std::move(guardian)), signals_(std::move(signals)) {}
  std::unique_ptr<RunGuardian> guardian_;
  net::Fd signals_;  // a signalfd
};

}  // namespace thalweg::launch
