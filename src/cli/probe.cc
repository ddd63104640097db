#include <fmt/core.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <thalweg/communicator.h>

#include "cli/command.h"
#include "cli/commands.h"
#include "lab/files.h"
#include "lab/observe/probe_report.h"
#include "net/probe/probe.h"
#include "topology/format/load.h"

namespace thalweg::cli {
namespace {

struct ProbeArguments {
  std::string each = "100ms";
  std::string out;
  bool json = false;
};

Result<int> run_probe(const ProbeArguments& arguments) {
  net::ProbeOptions options;
  THALWEG_TRY(options.each, parse_duration(arguments.each));
  if (options.each < Duration::milliseconds(1) || options.each > Duration::milliseconds(10'000)) {
    return Error(fmt::format("--each: {}; from 1ms to 10s is allowed", arguments.each));
  }
  THALWEG_TRY(const Communicator all, Communicator::create({}));
  if (all.size() < 2) {
    return Error(
        "probe: this rank is alone, and there is no network to measure: start it with two or more, "
        "as in thalweg run -n 4 -- thalweg probe");
  }
  THALWEG_TRY(const std::vector<topology::ProbeSample> samples, net::probe_network(all, options));
  if (all.rank() != 0) return 0;
  THALWEG_TRY(const topology::ProbedTopology probed,
              topology::topology_from_probe(all.size(), samples));
  const std::string yaml = topology::topology_to_yaml(probed.topology);
  if (!arguments.out.empty()) THALWEG_TRY_STATUS(lab::write_files({{arguments.out, yaml}}));
  if (arguments.json) {
    std::cout << lab::probe_json(probed, samples).dump(2) << '\n';
    return 0;
  }
  std::cout << lab::probe_table(probed, samples)
            << fmt::format("\n{} (confidence {:.2f})\n", probed.reason, probed.confidence);
  if (arguments.out.empty()) {
    std::cout << '\n' << yaml;
  } else {
    std::cout << fmt::format("The topology is in {}.\n", arguments.out);
  }
  return 0;
}

}  // namespace

void add_probe(CLI::App& app) {
  auto arguments = std::make_shared<ProbeArguments>();
  CLI::App& command = *app.add_subcommand(
      "probe",
      "measure the network between the ranks of a job (thalweg run -n 4 -- thalweg probe), as a "
      "topology");
  command.add_option("--each", arguments->each, "how long one rate is measured")
      ->capture_default_str();
  command.add_option("-o,--out", arguments->out, "write the topology to this file");
  command.add_flag("--json", arguments->json, "print everything that was measured, as JSON");
  add_examples(command, {"thalweg run -n 4 -- thalweg probe --out measured.yaml"});
  on_run(command, [arguments] { return run_probe(*arguments); });
}

}  // namespace thalweg::cli
