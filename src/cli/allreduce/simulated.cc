#include "cli/allreduce/simulated.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "sim/scenario.h"
#include "sim/scenario_run.h"

namespace thalweg::allreduce {
namespace {

constexpr int kCalls = 11;
// The communicator passes on what it has of a chunk at once; the simulator by parts of this size.
constexpr const char* kPart = "64KiB";

// Buffers as the emulated network has them (emulated_network.cc), the kernel's minimum for a
// retransmission timer; delays are the topology's, which the emulated network does not add.
std::string scenario_text(const Topology& topology, const SimulatedCall& call) {
  const std::string transport = call.transport == "dlcp"
                                    ? fmt::format("{{kind: dlcp, bound: {}}}", call.bound)
                                    : std::string("{kind: cubic, rto_min: 200ms}");
  std::string text = fmt::format(
      "topology: given\ntransport: {}\nnetwork: {{port_buffer: 10MB, host_queue: 64kB}}\n"
      "until: 600s\njobs:\n"
      "  - {{size: {}B, scheme: \"{}\", overlap: none, partition: {}, iterations: {}}}\n",
      transport, call.size.count(), call.scheme, kPart, kCalls);
  if (call.loss == 0) return text;
  text += "faults:\n";
  for (const Link& link : topology.links()) {
    if (!topology.rank_of(link.a).valid() && !topology.rank_of(link.b).valid()) continue;
    // A fault is of both directions; what goes from host to host meets two of them.
    text += fmt::format("  - {{at: 0ms, link: [\"{}\", \"{}\"], loss: {}}}\n",
                        topology.node(link.a).name, topology.node(link.b).name, call.loss / 2);
  }
  return text;
}

}  // namespace

Result<Duration> simulate(const Topology& topology, const SimulatedCall& call) {
  const ScenarioLoaders loaders{
      .topology = [&](const std::string&) -> Result<Topology> { return topology; }, .model = {}};
  THALWEG_TRY(const Scenario scenario,
              scenario_from_yaml(scenario_text(topology, call), "simulation", loaders));
  THALWEG_TRY(const ScenarioResult result, run_scenario(scenario, [](Time) {}));
  if (!result.violations.empty()) return Error("simulation: " + result.violations.front());
  if (!result.finished) return Error("simulation: not over after 600 s");
  std::vector<Duration> times;
  for (const IterationResult& iteration : result.jobs.front().iterations) {
    times.push_back(iteration.duration());
  }
  std::ranges::sort(times);
  return times[times.size() / 2];
}

}  // namespace thalweg::allreduce
