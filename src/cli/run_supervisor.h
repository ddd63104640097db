// Processes that live and end together: the ranks of a job on this host, or the programs that start
// ranks on others.
//
// 1. Each leads a process group of its own; what it leaves running there is ended with it.
// 2. When one fails, or the supervisor is told to stop, the others are asked to end and after a
//    grace are killed. With keep_going a failure leaves the others alone.
// 3. None outlives the supervisor, however that ends: a guardian process, which nothing but the end
//    of the supervisor wakes, kills what is left.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "cli/run_guardian.h"
#include "net/fd.h"

namespace thalweg {

struct SupervisedProcess {
  std::string name;  // in messages: "rank 3"
  std::vector<std::string> command;
  std::vector<std::string> environment = {};  // NAME=value, instead of ours
  std::string prefix = {};                    // of every line that it prints
  // Written to its standard input, which then stays open: its end asks the process to end. None:
  // there is nothing to read, and SIGTERM asks.
  std::optional<std::string> input = {};
};

struct SupervisorOptions {
  bool keep_going = false;
  // Output goes where ours does, as it comes; else it is passed on by whole lines.
  bool raw_output = false;
  Duration grace = Duration::milliseconds(5'000);
  std::optional<Duration> timeout = {};
  // A descriptor whose end asks all to end; -1: none.
  int stop_at_end_of = -1;
};

// Exit code of a job that took longer than its timeout, as that of timeout(1).
inline constexpr int kExitTimeout = 124;

class Supervisor {
 public:
  // Takes SIGINT, SIGTERM, SIGHUP and SIGCHLD of this process, and starts the guardian. To be
  // called before there are threads.
  static Result<Supervisor> prepare();

  // Until all have ended. The exit code: of the first that failed (128 + the signal that ended it),
  // 128 + the signal that we got, kExitTimeout, or 0.
  Result<int> run(const std::vector<SupervisedProcess>& processes,
                  const SupervisorOptions& options);

 private:
  class Job;
  Supervisor(std::unique_ptr<RunGuardian> guardian, Fd signals)
      : guardian_(std::move(guardian)), signals_(std::move(signals)) {}
  std::unique_ptr<RunGuardian> guardian_;
  Fd signals_;  // a signalfd
};

}  // namespace thalweg
