#include <fmt/core.h>

#include <memory>

#include "cli/command.h"
#include "cli/commands.h"
#include "lab/bench/transport.h"

namespace thalweg::cli {
namespace {

struct BenchTransportArguments {
  lab::TransportBenchOptions options;
  bool json = false;
};

Result<int> run_bench_transport(const BenchTransportArguments& arguments) {
  THALWEG_TRY(const auto result, lab::measure_transport(arguments.options));
  fmt::print("{}", arguments.json ? result.dump(2) + "\n" : lab::transport_text(result));
  return 0;
}

}  // namespace

void add_bench_transport(CLI::App& bench) {
  auto* command = bench.add_subcommand(
      "transport",
      "DLCP between two processes, beside raw UDP and kernel TCP, on a clean and a lossy link");
  auto arguments = std::make_shared<BenchTransportArguments>();
  command->add_flag("--json", arguments->json, "print JSON instead of tables");
  command->add_flag("--quick", arguments->options.quick,
                    "only a few seconds, to see that it works");
  command
      ->add_option("--bound", arguments->options.bound,
                   "DLCP's loss bound on the lossy link, in [0, 1)")
      ->check(CLI::Range(0.0, 0.999))
      ->capture_default_str();
  add_examples(*command, {"thalweg bench transport --quick"});
  on_run(*command, [arguments] { return run_bench_transport(*arguments); });
}

}  // namespace thalweg::cli
