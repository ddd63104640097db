#include "lab/tuning/thresholds.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "lab/files.h"
#include "lab/sweep/scenario_files.h"
#include "plan/accounting.h"
#include "plan/scheme.h"
#include "plan/verify.h"

namespace thalweg::lab {
namespace {

constexpr Bytes kLeastPacket(64);
constexpr Bytes kMostPacket(65'536);
constexpr const char* kMeanLoad = "mean";

Result<Bytes> parse_size(const char* flag, const std::string& text, Bytes least, Bytes most) {
  const Result<Bytes> size = parse_bytes(text);
  if (!size.ok()) return size.error().within(flag);
  if (*size >= least && *size <= most) return *size;
  return Error(fmt::format("{}: '{}' is out of range: {} to {}", flag, text, to_string(least),
                           to_string(most)));
}

Result<double> parse_load(const std::string& text, double mean) {
  if (text == kMeanLoad) return mean;
  char* end = nullptr;
  const auto load = static_cast<double>(std::strtold(text.c_str(), &end));
  const bool whole = !text.empty() && end == text.c_str() + text.size();
  if (whole && load > 0 && load < 1) return load;
  return Error(fmt::format("--load: '{}' is neither a number above 0 and below 1 nor '{}'", text,
                           kMeanLoad));
}

// Finds the port of a switch that needs the longest for its part of one iteration.
Status find_port(const ThresholdOptions& options, const topology::Topology& topology,
                 TunedPort& port) {
  if (topology.host_count() < 2) return Error("--topology: at least two hosts are needed");
  const plan::PlanRequest request{.topology = topology,
                                  .elements = port.model.parameters(),
                                  .element_bytes = static_cast<int>(size_of(port.model.dtype))};
  const Result<plan::Plan> plan = plan::make_plan(options.scheme, request);
  if (!plan.ok()) return plan.error().within("--scheme");
  const Result<plan::PlanProof> proof = plan::verify(*plan);
  if (!proof.ok()) return proof.error().within("--scheme");
  const plan::Accounting accounting =
      plan::account(*plan, *proof, topology, topology::Routing(topology));
  std::optional<topology::ArcId> busiest;
  double longest = 0;
  for (std::size_t i = 0; i < topology.arc_count(); ++i) {
    const topology::ArcId id(static_cast<std::int32_t>(i));
    const topology::Arc arc = topology.arc(id);
    if (topology.node(arc.from).kind != topology::NodeKind::kSwitch) continue;
    const double seconds = accounting.arc_bytes[i] / arc.spec.rate.bytes_per_second();
    if (seconds > longest) busiest = id;
    longest = std::max(longest, seconds);
  }
  if (!busiest) return Error("--topology: no switch carries traffic, so there is nothing to tune");
  const topology::Arc arc = topology.arc(*busiest);
  port.name = topology.arc_name(*busiest);
  port.rate = arc.spec.rate;
  port.bytes = Bytes(std::llround(accounting.arc_bytes[busiest->index()]));
  port.busy = Duration::seconds(longest);
  port.buffer = arc.spec.buffer;
  const double computing = (port.model.forward_time() + port.model.backward_time()).s();
  port.mean_load = longest / (longest + computing);
  return ok_status();
}

Result<TunedPort> port_at(const ThresholdOptions& options) {
  TunedPort port;
  const sim::ScenarioLoaders loaders = scenario_loaders(options.models);
  const Result<sim::ModelTable> model = loaders.model(options.model);
  if (!model.ok()) return model.error().within("--model");
  port.model = *model;
  THALWEG_TRY(const topology::Topology topology, loaders.topology(options.topology));
  THALWEG_TRY_STATUS(find_port(options, topology, port));
  THALWEG_TRY(port.load, parse_load(options.load, port.mean_load));
  THALWEG_TRY(port.packet, parse_size("--packet", options.packet, kLeastPacket, kMostPacket));
  if (!options.buffer.empty()) {
    THALWEG_TRY(port.buffer,
                parse_size("--buffer", options.buffer, port.packet, topology::kMaxBuffer));
  } else if (port.buffer == Bytes(0)) {
    return Error(fmt::format("the topology does not say how much port {} buffers: give --buffer",
                             port.name));
  }
  tune::ConvergenceWeights weights;
  if (!options.weights.empty()) {
    THALWEG_TRY(const std::string text, read_file(options.weights));
    THALWEG_TRY(weights, tune::weights_from_yaml(text, options.weights));
  }
  port.exponent = weights.exponent;
  std::vector<tune::TunedLayer> layers;
  layers.reserve(port.model.layers.size());
  for (std::size_t i = 0; i < port.model.layers.size(); ++i) {
    layers.push_back({port.model.layers[i].name, port.model.size_of_layer(i)});
  }
  const auto data_queues = static_cast<std::size_t>(options.queues - 1);
  const Result<tune::QueueLoads> loads = tune::queue_loads(layers, data_queues, weights);
  if (!loads.ok()) return loads.error().within(options.weights);
  port.loads = *loads;
  return port;
}

std::vector<std::string> default_ports(const std::string& format) {
  if (format == "sonic") return {"Ethernet0"};
  if (format == "onyx") return {"1/1"};
  return {"swp1"};
}

}  // namespace

Result<TunedThresholds> tune_thresholds(const ThresholdOptions& options) {
  TunedThresholds tuned;
  THALWEG_TRY(tuned.port, port_at(options));
  const TunedPort& port = tuned.port;
  const auto packet = static_cast<double>(port.packet.count());
  const double data_buffer = (1 - kControlShare) * static_cast<double>(port.buffer.count());
  const tune::ThresholdProblem problem{.shares = port.loads.shares,
                                       .weights = port.loads.weights,
                                       .load = port.load,
                                       .small_fraction = options.small_fraction,
                                       .exponent = port.exponent,
                                       .buffer = data_buffer / packet};
  const double least = tune::least_buffer(problem.shares.size(), problem.small_fraction);
  if (problem.buffer < least) {
    return Error(fmt::format(
        "a buffer of {} is too small for {} data queues and packets of {}: at least {}",
        to_string(port.buffer), problem.shares.size(), to_string(port.packet),
        to_string(
            Bytes(static_cast<std::int64_t>(std::ceil(least * packet / (1 - kControlShare)))))));
  }
  THALWEG_TRY(tuned.solution, tune::solve_thresholds(problem));
  const auto bytes = [&](double packets) {
    return Bytes(static_cast<std::int64_t>(std::floor(packets * packet)));
  };
  std::uint8_t priority = kControlPriority;
  for (const tune::QueueThresholds& queue : tuned.solution.queues) {
    tuned.settings.queues.push_back(
        {.priority = ++priority, .threshold = bytes(queue.threshold), .limit = bytes(queue.limit)});
  }
  tuned.settings.port_buffer = port.buffer;
  tuned.settings.title =
      fmt::format("DLCP thresholds for {} over {}, {} a port, load {:.3g}", port.model.name,
                  options.scheme, to_string(port.buffer), port.load);
  tuned.settings.ports = options.ports.empty() ? default_ports(options.format) : options.ports;
  return tuned;
}

}  // namespace thalweg::lab
