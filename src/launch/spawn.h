// Starts another program as a child that does not outlive this process.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include <thalweg/result.h>

namespace thalweg::launch {

struct SpawnRequest {
  std::vector<std::string> command;  // a path or a name to be found in PATH, then its arguments
  // Variables as NAME=value. They replace variables of the same name in this process's environment.
  std::vector<std::string> environment = {};
  // Descriptors that become the child's standard input, output and error.
  int in = 0;
  int out = 1;
  int err = 2;
  bool own_group = false;  // the child leads a process group of its own
  // The cores that the child may run on; empty: those of this thread.
  std::vector<int> cores = {};
};

// Returns when the program runs, or with an error that names the program and the cause. The child
// has no signals blocked. It is killed when the calling thread ends.
Result<pid_t> spawn(const SpawnRequest& request);

}  // namespace thalweg::launch
