// The profiler is python/thalweg/bound.py, which trains: this starts it with all arguments.
#include "cli/tune_bound.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/home.h"
#include "cli/spawn.h"

namespace thalweg {
namespace {

constexpr int kSignalled = 128;  // plus the signal: what a shell says of a program that it ended

Result<int> run(std::vector<std::string> arguments) {
  const std::string package = home_folder() + "/python";
  std::error_code ignored;
  if (!std::filesystem::exists(package + "/thalweg/bound.py", ignored)) {
    return Error(fmt::format(
        "there is no {}/thalweg/bound.py (THALWEG_HOME names the folder of Thalweg)", package));
  }
  const char* others = std::getenv("PYTHONPATH");  // NOLINT(concurrency-mt-unsafe): nobody sets any
  std::vector<std::string> command = {python_interpreter(), "-m", "thalweg.bound"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const std::string path = others == nullptr ? package : package + ":" + others;
  const Result<pid_t> child = spawn({.command = command, .environment = {"PYTHONPATH=" + path}});
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

}  // namespace

void add_tune_bound(CLI::App& tune) {
  CLI::App& app = *tune.add_subcommand(
      "bound", "How much of a model's gradients may be lost, by training it (docs/convergence.md)");
  app.set_help_flag();  // the program that it starts has it
  app.prefix_command();
  on_run(app, [&app] { return run(app.remaining()); });
}

}  // namespace thalweg
