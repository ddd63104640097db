// Starts another program as a child that does not outlive this process.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include <thalweg/result.h>

namespace thalweg {

struct SpawnRequest {
  std::vector<std::string> command;  // a path, or a name to be found in PATH; then its arguments
  // NAME=value, instead of those of this process that have the same name.
  std::vector<std::string> environment = {};
  // Descriptors that it gets as its standard ones.
  int in = 0;
  int out = 1;
  int err = 2;
  bool own_group = false;  // a process group of its own, which it leads
};

// Returns when the program runs, or with an error that names it and why it does not. The child has
// no signals blocked, and is killed when the calling thread ends.
Result<pid_t> spawn(const SpawnRequest& request);

}  // namespace thalweg
