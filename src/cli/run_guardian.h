// The process that outlives a supervisor by a moment and kills the process groups it leaves.
#pragma once

#include <sys/types.h>

#include <memory>

#include <thalweg/result.h>

#include "net/fd.h"

namespace thalweg {

class RunGuardian {
 public:
  // Forks: to be called before there are threads.
  static Result<std::unique_ptr<RunGuardian>> start();
  // Ends it; groups that are still watched are killed.
  ~RunGuardian();
  RunGuardian(const RunGuardian&) = delete;
  RunGuardian& operator=(const RunGuardian&) = delete;

  void watch(pid_t group) { tell(group); }
  // The group is gone, and its number may become another's.
  void forget(pid_t group) { tell(-group); }

 private:
  RunGuardian(pid_t process, Fd pipe) : process_(process), pipe_(std::move(pipe)) {}
  void tell(pid_t number) const;

  pid_t process_;
  Fd pipe_;
};

}  // namespace thalweg
