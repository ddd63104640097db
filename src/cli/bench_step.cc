#include <fmt/core.h>

#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/commands.h"
#include "lab/bench/step/bench.h"

namespace thalweg::cli {
namespace {

Result<int> run_bench_step(const lab::step::Options& options) {
  THALWEG_TRY(const lab::step::Outcome outcome, lab::step::run(options));
  fmt::print("{}", outcome.text);
  return outcome.exit_code;
}

constexpr const char* kExample =
    "Example (root; four hosts at 50 Mb/s, a hundredth of ResNet-18 on a device 500 times "
    "slower):\n"
    "  thalweg bench step --testbed single-switch:hosts=4,host=50M,delay=100us --model resnet18 "
    "\\\n"
    "    --scale 0.01 --device-scale 500 --against gloo --loss 0.25% --bound 1% --priorities 7\n"
    "On the hosts of a launcher:\n"
    "  thalweg run --hosts node1,node2 -- thalweg bench step --model resnet18 --against gloo";

}  // namespace

void add_bench_step(CLI::App& bench) {
  auto options = std::make_shared<lab::step::Options>();
  CLI::App& app = *bench.add_subcommand(
      "step",
      "a recorded model's training step on a real network, beside Gloo, the link's limit "
      "and the simulator's forecast");
  app.add_option("--testbed", options->testbed,
                 "a shorthand or file: a testbed is made of it (root), with a rank on each host; "
                 "without it this process is a rank of a launcher");
  app.add_option("--topology", options->topology,
                 "the launcher's network, for the limit, the forecast and rat; rank i is host i");
  app.add_option(
      "--model", options->model,
      "layer table: a name in models/, or a file; or a Chakra trace of one rank, FILE.et");
  app.add_option("--models", options->models, "folder of layer tables");
  app.add_option("--scale", options->scale,
                 "factor for the model's bytes and times, above 0 and at most 1")
      ->capture_default_str();
  app.add_option("--device-scale", options->device_scale,
                 "the device computes this many times slower than the one of the table")
      ->capture_default_str();
  app.add_option(
      "--bucket", options->bucket,
      "bytes of gradients that are sent together, before scaling (25MiB, the first bucket 1MiB, as "
      "in DDP)");
  app.add_option("--schedule", options->schedule,
                 "ddp: a step waits for all gradients; layerwise: each layer for its own bucket")
      ->capture_default_str();
  app.add_option("--libraries", options->libraries,
                 "ways of Thalweg, with commas: tcp, dlcp, atp, rat, ps, auto; +priority or, for "
                 "dlcp, +bound, or for tcp, +straggler "
                 "may follow a name (all that the other options allow)")
      ->delimiter(',');
  app.add_flag("--auto", options->with_auto,
               "add the library auto: it chooses by trials, which are not among the timed steps");
  app.add_option("--against", options->against, "peers in the same run: gloo")->delimiter(',');
  app.add_option("--bound", options->bound, "loss bound of the library dlcp+bound, as in 1%");
  app.add_option("--straggler-bound", options->straggler_bound,
                 "part of the contributions that the library tcp+straggler may leave out when "
                 "ranks stall, as in 5%");
  app.add_option("--straggler-window", options->straggler_window,
                 "steps over which it keeps that bound")
      ->capture_default_str();
  app.add_option("--stall-every", options->stall_every,
                 "mean time between stalls of a host of the testbed, drawn at random, as in 600ms");
  app.add_option("--stall-for", options->stall_for, "how long each stall lasts, as in 104ms");
  app.add_option("--priorities", options->priorities,
                 "queues that the layers of +priority are divided among, 1 to 7 (7)");
  app.add_option("--loss", options->loss,
                 "loss of every packet between two hosts of the testbed, as in 0.5%");
  app.add_option("--aggregate", options->aggregate,
                 "the switches of the testbed that sum, for atp, with commas: one level, or the "
                 "leaves of the racks")
      ->delimiter(',');
  app.add_option("--ranks", options->ranks,
                 "number of ranks, on the first hosts of the topology (all hosts)");
  app.add_option("--steps", options->steps, "timed steps of each library")->capture_default_str();
  app.add_option("--seed", options->seed, "seed for the testbed's losses and for the simulation")
      ->capture_default_str();
  app.add_option("--timeout", options->timeout, "end the ranks of the testbed after this long");
  app.add_flag("--no-simulation", options->no_simulation, "leave out the simulator's forecast");
  app.add_flag("--json", options->json, "print JSON instead of a table");
  app.add_option("--results", options->results)->group("");
  app.footer(kExample);
  on_run(app, [options] { return run_bench_step(*options); });
}

}  // namespace thalweg::cli
