#include "lab/bench/allreduce/simulated.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "plan/cost.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/scenario_run.h"

namespace thalweg::lab::allreduce {
namespace {

std::int64_t host_queue(const topology::Topology& topology) {
  double slowest = std::numeric_limits<double>::infinity();  // bytes per second
  for (thalweg::Rank rank(0); rank.value() < topology.host_count(); ++rank) {
    for (const topology::ArcId arc : topology.arcs_from(topology.host(rank))) {
      slowest = std::min(slowest, topology.arc(arc).spec.rate.bytes_per_second());
    }
  }
  return static_cast<std::int64_t>(plan::host_queue({}, slowest));
}

// The scenario of the call. Buffers are those of the emulated network (emulated_network.cc), the
// minimum of the retransmission timer is the kernel's, and delays are the topology's, which the
// emulated network does not add.
std::string scenario_text(const topology::Topology& topology, const SimulatedCall& call) {
  const std::string transport = call.transport == "dlcp"
                                    ? fmt::format("{{kind: dlcp, bound: {}}}", call.bound)
                                    : std::string(kKernelTcp);
  std::string text = fmt::format(
      "topology: given\nseed: {}\ntransport: {}\nnetwork: {{port_buffer: 10MB, host_queue: {}B}}\n"
      "connections: {{forward: packets}}\nuntil: 600s\njobs:\n"
      "  - {{size: {}B, scheme: \"{}\", overlap: none, iterations: {}}}\n",
      call.seed, transport, host_queue(topology), call.size.count(), call.scheme, call.calls);
  if (call.loss == 0) return text;
  text += "faults:\n";
  for (const topology::Link& link : topology.links()) {
    if (!topology.rank_of(link.a).valid() && !topology.rank_of(link.b).valid()) continue;
    // A fault acts in both directions, so a packet from host to host meets two of them.
    text += fmt::format("  - {{at: 0ms, link: [\"{}\", \"{}\"], loss: {}}}\n",
                        topology.node(link.a).name, topology.node(link.b).name, call.loss / 2);
  }
  return text;
}

}  // namespace

Result<Duration> simulate(const topology::Topology& topology, const SimulatedCall& call) {
  const sim::ScenarioLoaders loaders{
      .topology = [&](const std::string&) -> Result<topology::Topology> { return topology; },
      .model = {}};
  THALWEG_TRY(const sim::Scenario scenario,
              sim::scenario_from_yaml(scenario_text(topology, call), "simulation", loaders));
  THALWEG_TRY(const sim::ScenarioResult result, sim::run_scenario(scenario, {}));
  if (!result.violations.empty()) return Error("simulation: " + result.violations.front());
  if (!result.finished) return Error("simulation: not over after 600 s");
  std::vector<Duration> times;
  for (const sim::IterationResult& iteration : result.jobs.front().iterations) {
    times.push_back(iteration.slowest_worker);
  }
  std::ranges::sort(times);
  return times[times.size() / 2];
}

}  // namespace thalweg::lab::allreduce
