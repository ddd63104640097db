// Runs a script of python/thalweg/lab with the right interpreter.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <thalweg/result.h>

namespace thalweg::lab {

struct PythonScript {
  std::string name;  // a file of python/thalweg/lab
  std::vector<std::string> options = {};
  std::string input = {};                // for its standard input
  std::chrono::milliseconds limit = {};  // it is killed when it takes longer
  std::string doing;                     // begins every error: "cannot draw"
};

// Runs the script to its end and returns its standard output. If it fails, the error holds what the
// script wrote to standard error.
Result<std::string> run_python_script(PythonScript script);

}  // namespace thalweg::lab
