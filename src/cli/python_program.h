// Starts commands that are Python programs of the package `thalweg`.
#pragma once

#include <string>
#include <vector>

#include <thalweg/result.h>

namespace thalweg::cli {

// Runs `python -m MODULE ARGUMENTS…` ("thalweg.lab.tune_bound") with the project's interpreter and
// package, and returns its exit code. As a shell does, it returns 128 and the signal that ended it.
[[nodiscard]] Result<int> run_python_program(const std::string& module,
                                             const std::vector<std::string>& arguments);

}  // namespace thalweg::cli
