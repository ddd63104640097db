// Runs another program to its end, with a time limit.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <thalweg/result.h>

namespace thalweg {

struct ChildRequest {
  std::vector<std::string> command;  // a path, or a name to be found in PATH; then its arguments
  std::string input = {};            // what it reads
  // NAME=value, before those of this process.
  std::vector<std::string> environment = {};
  std::chrono::milliseconds limit = {};
};

struct ChildOutcome {
  int exit_code = 0;  // 128 + the signal that ended it
  std::string output;
  std::string errors;
};

// An error if the program cannot be started or runs past its limit, when it is killed. It does not
// outlive this process either, however that ends. Input and output are held in memory.
Result<ChildOutcome> run_child(const ChildRequest& request);

}  // namespace thalweg
