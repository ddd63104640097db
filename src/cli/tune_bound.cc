// The profiler, which trains, is python/thalweg/lab/tune_bound.py. This command starts it with all
// arguments.
#include "cli/commands.h"

#include <fmt/core.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/command.h"
#include "lab/home.h"
#include "launch/spawn.h"

namespace thalweg::cli {
namespace {

constexpr int kSignalled = 128;  // plus the signal that ended the program, as a shell returns it

Result<int> run_tune_bound(std::vector<std::string> arguments) {
  const std::string package = lab::home_folder() + "/python";
  std::error_code ignored;
  if (!std::filesystem::exists(package + "/thalweg/lab/tune_bound.py", ignored)) {
    return Error(fmt::format(
        "there is no {}/thalweg/lab/tune_bound.py (THALWEG_HOME names the folder of Thalweg)",
        package));
  }
  const char* others = std::getenv("PYTHONPATH");  // NOLINT(concurrency-mt-unsafe): none is set
  std::vector<std::string> command = {lab::python_interpreter(), "-m", "thalweg.lab.tune_bound"};
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

}  // namespace

void add_tune_bound(CLI::App& tune) {
  CLI::App& app = *tune.add_subcommand(
      "bound", "how much of a model's gradients may be lost, by training it (docs/convergence.md)");
  app.set_help_flag();  // the Python program has its own
  app.prefix_command();
  on_run(app, [&app] { return run_tune_bound(app.remaining()); });
}

}  // namespace thalweg::cli
