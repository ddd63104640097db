// Runs a script of python/thalweg with what it needs to find Python and itself.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <thalweg/result.h>

namespace thalweg {

struct PythonScript {
  std::string name;  // a file of python/thalweg
  std::vector<std::string> options = {};
  std::string input = {};
  std::chrono::milliseconds limit = {};
  std::string doing;  // begins every error: "cannot draw"
};

// What it writes. An error, with the script's own words, if it does not end well.
Result<std::string> run_python_script(PythonScript script);

}  // namespace thalweg
