#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/commands.h"
#include "lab/bench/sim_speed.h"
#include "sim/core/shard_map.h"

namespace thalweg::cli {
namespace {

struct BenchSimArguments {
  lab::SimSpeedOptions options;
  bool json = false;
};

Result<int> run_bench_sim(const BenchSimArguments& arguments) {
  THALWEG_TRY(const auto result, lab::measure_sim_speed(arguments.options));
  std::cout << (arguments.json ? result.dump(2) + "\n" : lab::sim_speed_text(result));
  return 0;
}

}  // namespace

void add_bench_sim(CLI::App& bench) {
  auto arguments = std::make_shared<BenchSimArguments>();
  lab::SimSpeedOptions& options = arguments->options;
  CLI::App& app = *bench.add_subcommand(
      "sim",
      "packet-hops a second of the simulator on one core, of ns-3 beside it, and the gain of more");
  app.add_option("--topology", options.topology, "a topology file or shorthand");
  app.add_option("--flow-size", options.flow_size, "bytes of every flow, with a unit");
  app.add_option("--rounds", options.rounds, "flows that every host sends at once")
      ->check(CLI::Range(1, 100));
  app.add_option("--until", options.until, "simulated time of a run");
  app.add_option("--turns", options.turns, "how often both are measured in turn")
      ->check(CLI::Range(1, 1000));
  app.add_option("--threads", options.threads,
                 "threads of the runs that give 'speedup' (0: one for each core)")
      ->check(CLI::Range(std::size_t{0}, sim::kMaxShards));
  app.add_option("--seed", options.seed, "seed for the choice of targets and paths");
  app.add_option("--ns3", options.ns3,
                 "the program ns3_peer (default: ../ns3/ns3_peer beside this one's folder)");
  app.add_flag("--no-ns3", options.no_ns3, "measure only our simulator");
  app.add_flag("--json", arguments->json, "print a JSON object");
  add_examples(app, {"thalweg bench sim --no-ns3"});
  on_run(app, [arguments] { return run_bench_sim(*arguments); });
}

}  // namespace thalweg::cli
