#include "cli/python_program.h"

#include <fmt/core.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "lab/home.h"
#include "launch/spawn.h"

namespace thalweg::cli {
namespace {

constexpr int kSignalled = 128;  // plus the signal that ended the program

}  // namespace

Result<int> run_python_program(const std::string& module,
                               const std::vector<std::string>& arguments) {
  const std::string package = lab::home_folder() + "/python";
  std::string file = module;
  std::ranges::replace(file, '.', '/');
  file = package + "/" + file + ".py";
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) {
    return Error(fmt::format("there is no {} (THALWEG_HOME names the folder of Thalweg)", file));
  }
  const char* others = std::getenv("PYTHONPATH");  // NOLINT(concurrency-mt-unsafe): none is set
  std::vector<std::string> command = {lab::python_interpreter(), "-m", module};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const std::string path = others == nullptr ? package : package + ":" + others;
  const Result<pid_t> child =
      launch::spawn({.command = command, .environment = {"PYTHONPATH=" + path}});
  if (!child.ok()) {
    return Error(child.error().message() +
                 "; tools/setup installs Python, THALWEG_PYTHON names another");
  }
  int state = 0;
  while (waitpid(*child, &state, 0) < 0) {
    if (errno != EINTR) return Error("cannot wait for the Python program");
  }
  return WIFEXITED(state) ? WEXITSTATUS(state) : kSignalled + WTERMSIG(state);
}

}  // namespace thalweg::cli
