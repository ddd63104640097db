#include "cli/probe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <thalweg/communicator.h>

#include "cli/command.h"
#include "net/probe/probe.h"
#include "topology/load.h"

namespace thalweg {
namespace {

struct Arguments {
  std::string each = "100ms";
  std::string out;
  bool json = false;
};

std::string members(const ProbedTopology& probed, int region) {
  std::vector<int> hosts;
  for (std::size_t h = 0; h < probed.region_of.size(); ++h) {
    if (probed.region_of[h] == region) hosts.push_back(static_cast<int>(h));
  }
  return fmt::format("{}", fmt::join(hosts, " "));
}

std::string to_table(const ProbedTopology& probed, const std::vector<ProbeSample>& samples) {
  struct Span {
    Duration least = Duration::seconds(1e6);
    Bandwidth slowest = Bandwidth::gbps(1'000'000);
    Bandwidth fastest;
  };
  // Within each region, and then between regions.
  std::vector<Span> spans(static_cast<std::size_t>(probed.regions) + 1);
  for (const ProbeSample& s : samples) {
    const int from = probed.region_of[static_cast<std::size_t>(s.from)];
    const bool same = from == probed.region_of[static_cast<std::size_t>(s.to)];
    Span& span = spans[static_cast<std::size_t>(same ? from : probed.regions)];
    span.least = std::min(span.least, s.round_trip);
    span.slowest = std::min(span.slowest, s.rate);
    span.fastest = std::max(span.fastest, s.rate);
  }
  std::vector<std::vector<std::string>> rows = {
      {"", "ranks", "round trip from", "rate from", "to"}};
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const bool between = i + 1 == spans.size();
    if (spans[i].fastest == Bandwidth() && between) continue;
    const bool alone = spans[i].fastest == Bandwidth();
    rows.push_back({between ? "between" : fmt::format("region {}", i),
                    between ? "" : members(probed, static_cast<int>(i)),
                    alone ? "" : to_human(spans[i].least), alone ? "" : to_string(spans[i].slowest),
                    alone ? "" : to_string(spans[i].fastest)});
  }
  return format_table(rows);
}

nlohmann::ordered_json to_json(const ProbedTopology& probed,
                               const std::vector<ProbeSample>& samples) {
  nlohmann::ordered_json json;
  json["ranks"] = probed.region_of.size();
  json["regions"] = probed.regions;
  json["region_of"] = probed.region_of;
  json["confidence"] = probed.confidence;
  json["by"] = probed.by;
  json["reason"] = probed.reason;
  json["topology"] = topology_to_yaml(probed.topology);
  json["samples"] = nlohmann::ordered_json::array();
  for (const ProbeSample& s : samples) {
    json["samples"].push_back({{"round", s.round},
                               {"from", s.from},
                               {"to", s.to},
                               {"round_trip_us", s.round_trip.us()},
                               {"rate_bps", s.rate.bps()}});
  }
  return json;
}

Result<int> run(const Arguments& arguments) {
  ProbeOptions options;
  THALWEG_TRY(options.each, parse_duration(arguments.each));
  if (options.each < Duration::milliseconds(1) || options.each > Duration::milliseconds(10'000)) {
    return Error(fmt::format("--each: {}; from 1ms to 10s is allowed", arguments.each));
  }
  THALWEG_TRY(const Communicator all, Communicator::create({}));
  THALWEG_TRY(const std::vector<ProbeSample> samples, probe_network(all, options));
  if (all.rank() != 0) return 0;
  THALWEG_TRY(const ProbedTopology probed, topology_from_probe(all.size(), samples));
  const std::string yaml = topology_to_yaml(probed.topology);
  if (!arguments.out.empty()) THALWEG_TRY_STATUS(write_files({{arguments.out, yaml}}));
  if (arguments.json) {
    std::cout << to_json(probed, samples).dump(2) << '\n';
    return 0;
  }
  std::cout << to_table(probed, samples)
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
  auto arguments = std::make_shared<Arguments>();
  CLI::App& command = *app.add_subcommand(
      "probe",
      "Measure the network between the ranks of a job (thalweg run -n 4 -- thalweg probe), as a "
      "topology");
  command.add_option("--each", arguments->each, "How long one rate is measured")
      ->capture_default_str();
  command.add_option("-o,--out", arguments->out, "Write the topology to this file");
  command.add_flag("--json", arguments->json, "Print everything that was measured, as JSON");
  on_run(command, [arguments] { return run(*arguments); });
}

}  // namespace thalweg
