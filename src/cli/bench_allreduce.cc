#include <fmt/core.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/commands.h"
#include "lab/bench/allreduce/bench.h"
#include "lab/bench/allreduce/libraries.h"
#include "launch/signals.h"

namespace thalweg::cli {
namespace {

Result<int> measure_allreduce(const lab::allreduce::Options& options) {
  THALWEG_TRY(const lab::allreduce::Settings settings, lab::allreduce::settings_of(options));
  THALWEG_TRY(const std::optional<lab::EmulatedNetwork> network,
              lab::allreduce::network_of(options, settings));
  std::vector<lab::allreduce::Report> reports;
  bool right = true;
  for (const std::string& congestion_control : options.congestion_controls) {
    THALWEG_TRY(lab::allreduce::Report report,
                lab::allreduce::measure_all(options, settings, network ? &*network : nullptr,
                                            congestion_control));
    if (!options.json) fmt::print("{}", lab::allreduce::to_text(report));
    right = right && report.wrong() == 0;
    reports.push_back(std::move(report));
  }
  if (options.json) fmt::print("{}\n", lab::allreduce::to_json(reports).dump(2));
  return right ? 0 : kExitNo;
}

Result<int> run_bench_allreduce(const lab::allreduce::Options& options) {
  Result<int> code = measure_allreduce(options);
  // The benchmark blocks the signals that end it until its processes have ended.
  if (!code.ok()) launch::end_by_blocked_signal();
  return code;
}

}  // namespace

void add_bench_allreduce(CLI::App& bench) {
  auto options = std::make_shared<lab::allreduce::Options>();
  CLI::App& app = *bench.add_subcommand(
      "allreduce", "allreduce between processes, beside Gloo and Open MPI, results checked");
  app.add_option("--ranks", options->ranks, "number of processes (2)");
  app.add_option("--sizes", options->sizes,
                 "sizes of the tensor, with commas (powers of 4 from 1KiB to 64MiB)")
      ->delimiter(',');
  app.add_option("--type", options->type, "float32, float64, int32 or int64")
      ->capture_default_str();
  app.add_option("--op", options->op, "sum, product, min or max")->capture_default_str();
  app.add_option("--transport", options->transports, "transports of our ranks, with commas")
      ->delimiter(',')
      ->check(one_of(lab::allreduce::own_transports()))
      ->capture_default_str()
      ->group("Our ranks");
  app.add_option("--scheme", options->schemes,
                 "schemes of our ranks, as `thalweg plan` takes them, with blanks between several "
                 "(chosen by "
                 "size, or with --topology by the planner)")
      ->group("Our ranks");
  app.add_option(
         "--against", options->against,
         "peers in the same run, with commas; bare is what plain TCP sockets allow: the limit")
      ->delimiter(',')
      ->check(one_of(lab::allreduce::peer_names()));
  app.add_flag("--netns", options->netns,
               "give every rank a network namespace of its own; needs root")
      ->group("Network");
  app.add_option("--topology", options->topology,
                 "a shorthand or file: every host a namespace with a rank, every switch a bridge, "
                 "every link at its rate; one way between any two hosts; needs root")
      ->group("Network");
  app.add_flag("--simulate", options->simulate,
               "also print the times of the simulator, for the same schemes on the same network");
  app.add_option("--nics", options->nics,
                 "network devices of every namespace, each on a network of its own")
      ->capture_default_str()
      ->group("Network");
  app.add_option("--streams", options->streams,
                 "TCP streams of our ranks, for each pair of devices")
      ->capture_default_str()
      ->group("Our ranks");
  app.add_option("--rate", options->rates,
                 "rate of every link between namespaces, as in 1G; or, with commas, the rate of "
                 "each device's link")
      ->delimiter(',')
      ->group("Network");
  app.add_option("--loss", options->loss, "loss of every packet between namespaces, as in 0.5%")
      ->group("Network");
  app.add_option("--bound", options->bound, "loss bound over DLCP, as in 1% (exact)")
      ->group("Our ranks");
  app.add_option(
         "--congestion-control", options->congestion_controls,
         "congestion controls of all TCP between namespaces, as in bbr,cubic: a run with each (the "
         "system's)")
      ->delimiter(',')
      ->group("Network");
  app.add_flag("--json", options->json, "print JSON instead of tables");
  app.add_flag("--quick", options->quick, "only a few calls up to 1MiB, to see that it works");
  add_examples(app, {"thalweg bench allreduce --ranks 2 --against gloo,openmpi",
                     "thalweg bench allreduce --sizes 64KiB,1MiB --netns --rate 1G --loss 0.5% "
                     "--transport tcp,dlcp --bound 1%"});
  on_run(app, [options] { return run_bench_allreduce(*options); });
}

}  // namespace thalweg::cli
