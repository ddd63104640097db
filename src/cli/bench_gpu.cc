// The benchmark is python/thalweg/lab/bench/gpu_allreduce.py, because its peers are PyTorch's. This
// command starts it with all arguments.
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/python_program.h"

namespace thalweg::cli {

void add_bench_gpu(CLI::App& bench) {
  CLI::App& app = *bench.add_subcommand(
      "gpu", "allreduces of GPU tensors beside NCCL's and Gloo's (docs/bench-gpu.md)");
  app.set_help_flag();  // the Python program has its own
  app.prefix_command();
  on_run(app,
         [&app] { return run_python_program("thalweg.lab.bench.gpu_allreduce", app.remaining()); });
}

}  // namespace thalweg::cli
