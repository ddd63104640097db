#include "lab/python_script.h"

#include <fmt/core.h>

#include <filesystem>
#include <utility>

#include "lab/home.h"
#include "launch/child_process.h"

namespace thalweg::lab {

Result<std::string> run_python_script(PythonScript script) {
  const std::string path = home_folder() + "/python/thalweg/lab/" + script.name;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return Error(fmt::format("{}: there is no {} (THALWEG_HOME names the folder of Thalweg)",
                             script.doing, path));
  }
  const std::string python = python_interpreter();
  std::vector<std::string> command{python, path};
  command.insert(command.end(), script.options.begin(), script.options.end());
  auto outcome = launch::run_child({.command = std::move(command),
                                    .input = std::move(script.input),
                                    // Modules beside the script must not hide those of Python.
                                    .environment = {"PYTHONSAFEPATH=1"},
                                    .limit = script.limit});
  if (!outcome.ok()) {
    return Error(script.doing + ": " + outcome.error().message() +
                 "; tools/setup installs Python, THALWEG_PYTHON names another");
  }
  if (outcome->exit_code != 0) {
    std::string& errors = outcome->errors;
    while (errors.ends_with('\n')) errors.pop_back();
    return Error(fmt::format("{}: {}", script.doing,
                             errors.empty()
                                 ? fmt::format("{} ended with code {}", python, outcome->exit_code)
                                 : errors));
  }
  return std::move(outcome->output);
}

}  // namespace thalweg::lab
