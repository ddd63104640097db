#include "lab/bench/step/forecast.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include <thalweg/communicator.h>

#include "lab/bench/allreduce/simulated.h"
#include "lab/bench/step/limit.h"
#include "net/group/api/plans.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/scenario_run.h"
#include "tensor/tags.h"
#include "wire/atp_packet.h"

namespace thalweg::lab::step {
namespace {

// More simulated steps do not move the median, and take their time.
constexpr int kMostSteps = 40;
// The longest simulated time, which is a scenario's limit. Steps should need this part of it.
constexpr Duration kLongest = Duration::milliseconds(3'600'000);
constexpr double kPartOfLongest = 0.1;
// Gloo's ring stores and forwards parts of chunks. Our communicators forward packets.
constexpr const char* kGloosPart = "64KiB";
constexpr std::size_t kHeadersBelow = 28;  // bytes of IP and UDP; the testbed's rates count them
constexpr int kSlots = 4096;  // of a switch that sums: more than its hosts have in flight

// The scheme of our ranks where none is named is that for the largest bucket, since a simulated job
// has one. Gloo's is its ring.
std::string scheme_of(const Settings& settings, const Library& library) {
  if (library.gloo) return "ring";
  if (!library.scheme.empty()) return library.scheme;
  std::int64_t largest = 0;
  for (const Bucket& bucket : settings.schedule.buckets) {
    largest = std::max(largest, bucket.size().count());
  }
  return net::usual_scheme(plan::Collective::kAllreduce, largest, settings.ranks, true);
}

std::string transport_of(const Settings& settings, const Library& library) {
  if (library.gloo || library.transport == Transport::kTcp) {
    return allreduce::kKernelTcp;
  }
  if (library.transport == Transport::kAtp) {
    return fmt::format("{{kind: atp, elements: {}, header: {}B}}",
                       CommunicatorOptions().atp_elements, kHeadersBelow + wire::kAtpHeaderSize);
  }
  return fmt::format("{{kind: dlcp, bound: {}}}", library.bounded ? settings.bound : 0);
}

int steps_of(const Settings& settings, const Library& library, int asked) {
  const double limit =
      step_limit(*settings.topology, library, settings.schedule, settings.bound).s();
  const double fitting = std::clamp(kPartOfLongest * kLongest.s() / limit, 2.0, 1.0 * kMostSteps);
  return std::min(asked, static_cast<int>(fitting));
}

std::string faults_of(const topology::Topology& topology, double loss) {
  if (loss == 0) return {};
  std::string text = "faults:\n";
  for (const topology::Link& link : topology.links()) {
    if (!topology.rank_of(link.a).valid() && !topology.rank_of(link.b).valid()) continue;
    // A packet from host to host meets two of them.
    text += fmt::format("  - {{at: 0ms, link: [\"{}\", \"{}\"], loss: {}}}\n",
                        topology.node(link.a).name, topology.node(link.b).name, loss / 2);
  }
  return text;
}

// Whether buckets share queues in the simulator, which has seven for data, as they do here.
bool has_same_queues(const Settings& settings) {
  const std::size_t buckets = settings.schedule.buckets.size();
  const auto queues = static_cast<std::size_t>(settings.priorities);
  for (std::size_t b = 1; b < buckets; ++b) {
    const bool shared = tensor::priority_of_layer(b, buckets, queues) ==
                        tensor::priority_of_layer(b - 1, buckets, queues);
    const bool shared_there =
        tensor::priority_of_layer(b, buckets) == tensor::priority_of_layer(b - 1, buckets);
    if (shared != shared_there) return false;
  }
  return true;
}

}  // namespace

std::optional<std::string> scenario_text(const Settings& settings, const Library& library,
                                         const ForecastOptions& options) {
  const topology::Topology& topology = *settings.topology;
  const bool atp = !library.gloo && library.transport == Transport::kAtp;
  // What auto will choose is not known before.
  if (library.transport == Transport::kAuto) return std::nullopt;
  // The communicator places the servers of several levels itself.
  if (atp && options.aggregate.size() > 1) return std::nullopt;
  const bool dlcp = !library.gloo && library.transport == Transport::kDlcp;
  const bool layerwise = settings.schedule.order == Order::kLayerwise;
  // ByteScheduler is both: front layers go first, and a layer waits for itself.
  if (layerwise != library.prioritized && (layerwise || !dlcp)) return std::nullopt;
  if (dlcp && library.prioritized && !has_same_queues(settings)) return std::nullopt;
  std::string text = fmt::format(
      "topology: given\ntransport: {}\nnetwork: {{discipline: {}, host_queue: 64kB}}\nseed: {}\n"
      "until: {:.0f}s\n",
      transport_of(settings, library), library.prioritized ? "strict-priority" : "fifo",
      options.seed, kLongest.s());
  std::string exchange = fmt::format("scheme: \"{}\"", scheme_of(settings, library));
  if (library.gloo) {
    exchange += fmt::format(", partition: {}", kGloosPart);
  } else if (!atp) {
    text += "connections: {forward: packets}\n";
  }
  if (atp) {
    text += fmt::format("aggregation: {{slots: {}, elements: {}", kSlots,
                        CommunicatorOptions().atp_elements);
    if (options.aggregate != std::vector<std::string>{"all"}) {
      text += fmt::format(", switches: [\"{}\"]", fmt::join(options.aggregate, "\", \""));
    }
    text += "}\n";
    std::vector<std::string> servers;
    for (Rank rank(0); rank.value() < topology.host_count(); ++rank) {
      servers.push_back("\"" + topology.node(topology.host(rank)).name + "\"");
    }
    exchange = fmt::format("servers: [{}]", fmt::join(servers, ", "));
  }
  text += fmt::format("jobs:\n  - {{model: given, overlap: {}, iterations: {}, {}}}\n",
                      layerwise ? "bytescheduler" : "wait-free",
                      steps_of(settings, library, options.steps), exchange);
  return text + faults_of(topology, settings.loss);
}

Result<std::optional<Duration>> forecast(const Settings& settings, const Library& library,
                                         const ForecastOptions& options) {
  const std::optional<std::string> text = scenario_text(settings, library, options);
  if (!text) return std::optional<Duration>();
  const sim::ScenarioLoaders loaders{
      .topology = [&](const std::string&) -> Result<topology::Topology> {
        return *settings.topology;
      },
      .model = [&](const std::string&) -> Result<sim::ModelTable> {
        return table_of(settings.schedule);
      }};
  THALWEG_TRY(const sim::Scenario scenario, sim::scenario_from_yaml(*text, "simulation", loaders));
  THALWEG_TRY(const sim::ScenarioResult result, sim::run_scenario(scenario, {}));
  if (!result.violations.empty()) return Error("simulation: " + result.violations.front());
  if (!result.failures.empty()) return Error("simulation: " + result.failures.front());
  if (!result.finished) return std::optional<Duration>();
  // Where steps overlap, a step lasts from its start to that of the next.
  std::vector<Duration> times;
  const std::vector<sim::IterationResult>& steps = result.jobs.front().iterations;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const bool last = i + 1 == steps.size();
    if (last && settings.schedule.order == Order::kLayerwise && i > 0) break;
    times.push_back((last ? steps[i].end : steps[i + 1].start) - steps[i].start);
  }
  std::ranges::sort(times);
  return std::optional<Duration>(times[times.size() / 2]);
}

}  // namespace thalweg::lab::step
