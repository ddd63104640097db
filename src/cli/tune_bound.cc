// The profiler, which trains, is python/thalweg/lab/tune_bound.py. This command starts it with all
// arguments.
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/python_program.h"

namespace thalweg::cli {

void add_tune_bound(CLI::App& tune) {
  CLI::App& app = *tune.add_subcommand(
      "bound", "how much of a model's gradients may be lost, by training it (docs/convergence.md)");
  app.set_help_flag();  // the Python program has its own
  app.prefix_command();
  on_run(app, [&app] { return run_python_program("thalweg.lab.tune_bound", app.remaining()); });
}

}  // namespace thalweg::cli
