// A process that outlives its supervisor for a moment and kills the process groups that it leaves.
#pragma once

#include <sys/types.h>

#include <memory>

#include <thalweg/result.h>

#include "net/io/fd.h"

namespace thalweg::launch {

class RunGuardian {
 public:
  // Forks, so call it before there are threads.
  static Result<std::unique_ptr<RunGuardian>> start();
  // Ends the guardian, which kills the groups that are still watched.
  ~RunGuardian();
  RunGuardian(const RunGuardian&) = delete;
  RunGuardian& operator=(const RunGuardian&) = delete;

  void watch(pid_t group) { tell(group); }
  // Call it when the group is gone, since another group may get its number.
  void forget(pid_t group) { tell(-group); }

 private:
  RunGuardian(pid_t process, net::Fd pipe) : process_(process), pipe_(std::move(pipe)) {}
  void tell(pid_t number) const;

  pid_t process_;
  net::Fd pipe_;
};

}  // namespace thalweg::launch
