// Runs another program to its end, with a time limit.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <thalweg/result.h>

namespace thalweg::launch {

struct ChildRequest {
  std::vector<std::string> command;  // a path or a name to be found in PATH, then its arguments
  std::string input = {};            // its standard input
  // Variables as NAME=value. They replace variables of the same name in this process's environment.
  std::vector<std::string> environment = {};
  std::chrono::milliseconds limit = {};
};

struct ChildOutcome {
  int exit_code = 0;  // its own, or 128 + the signal that ended it
  std::string output;
  std::string errors;
};

// Blocks until the program ends. It is an error if the program cannot be started, or runs past its
// limit; it is then killed. It never outlives this process, however that ends. Input and output are
// held in memory.
Result<ChildOutcome> run_child(const ChildRequest& request);

}  // namespace thalweg::launch
