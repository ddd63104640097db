#include "sync/forecast.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <ranges>

#include "plan/in_network.h"

namespace thalweg::sync {
namespace {

// Groups with equally many workers of the same regions cost the same, unless a worker's own link
// differs.
using GroupShape = std::vector<std::pair<int, std::int64_t>>;

GroupShape shape_of_group(const Exchange& exchange, const topology::Topology& topology) {
  GroupShape shape;
  for (const Rank member : exchange.members) {
    double rate = 0;
    for (const topology::ArcId arc : topology.arcs_from(topology.host(member))) {
      rate += topology.arc(arc).spec.rate.bytes_per_second();
    }
    shape.emplace_back(topology.region_of(member).value(), static_cast<std::int64_t>(rate));
  }
  std::ranges::sort(shape);
  return shape;
}

// What predict.h says of the scheme: pipelined as ranks pass on messages.
Result<Duration> time_by_packets(std::string_view scheme, const plan::PlanRequest& request,
                                 const plan::PlannerOptions& options) {
  THALWEG_TRY(const plan::Outline outline, plan::make_outline(scheme, request));
  const topology::Routing routing(request.topology);
  return plan::Predictor(request.topology, routing, options.cost).predict(outline).total;
}

// Every member serves its share; the ranks agree by a ring on one byte per packet.
Result<Duration> time_in_switches(const plan::PlanRequest& request, const topology::Topology& part,
                                  const plan::PlannerOptions& options) {
  plan::InNetworkRequest sums{.elements = request.elements, .agreement = {}};
  const std::int64_t blocks = (request.elements - 1) / sums.block_elements + 1;
  THALWEG_TRY(
      sums.agreement,
      time_by_packets("ring", {.topology = part, .elements = blocks, .element_bytes = 1}, options));
  return plan::in_network_time(sums, part, options.cost);
}

Result<Duration> time_of(const Exchange& exchange, const plan::PlanRequest& request,
                         const plan::PlannerOptions& options) {
  const topology::Topology part = topology::restricted_to(request.topology, exchange.members);
  if (exchange.in_switch()) return time_in_switches(request, part, options);
  return time_by_packets(exchange.scheme,
                         {.collective = exchange.collective,
                          .topology = part,
                          .elements = request.elements,
                          .element_bytes = request.element_bytes,
                          .root = Rank(0),
                          .tensor = request.tensor},
                         options);
}

}  // namespace

Result<Forecast> forecast(const Strategy& strategy, const plan::PlanRequest& request,
                          const plan::PlannerOptions& options) {
  Forecast result{.mixing = strategy.mixing(), .exchanges = {}};
  std::map<std::pair<std::string, GroupShape>, Duration> known;
  for (int t = 0; t < strategy.period(); ++t) {
    Duration slowest;
    for (const Exchange& exchange : strategy.exchanges(t)) {
      const std::pair key(exchange.scheme, shape_of_group(exchange, request.topology));
      auto found = known.find(key);
      if (found == known.end()) {
        THALWEG_TRY(const Duration time, time_of(exchange, request, options));
        found = known.emplace(key, time).first;
      }
      slowest = std::max(slowest, found->second);
    }
    result.exchanges.push_back(slowest);
  }
  return result;
}

Duration Forecast::mean() const {
  Duration sum;
  for (const Duration exchange : exchanges) sum = sum + exchange;
  return sum / static_cast<std::int64_t>(exchanges.size());
}

Duration iteration_time(std::span<const LayerCost> layers, Duration forward, Duration exchange) {
  double bytes = 0;
  for (const LayerCost& layer : layers) bytes += static_cast<double>(layer.size.count());
  double computed = forward.s();
  double sent = 0;
  for (const LayerCost& layer : std::views::reverse(layers)) {
    computed += layer.backward.s();
    sent =
        std::max(sent, computed) + exchange.s() * static_cast<double>(layer.size.count()) / bytes;
  }
  return Duration::seconds(std::max(sent, computed));
}

Verdict choose(std::span<const Candidate> candidates, int agree_within) {
  Verdict verdict;
  const Candidate* quickest = nullptr;
  for (std::size_t c = 0; c < candidates.size(); ++c) {
    const Candidate& candidate = candidates[c];
    if (quickest == nullptr || candidate.iteration < quickest->iteration) quickest = &candidate;
    const bool agrees = candidate.iterations_to_consensus > 0 &&
                        candidate.iterations_to_consensus <= agree_within &&
                        candidate.drawback.empty();
    if (agrees && (!verdict.best || candidate.iteration < candidates[*verdict.best].iteration)) {
      verdict.best = c;
    }
  }
  const std::string rule = fmt::format("workers that agree within {} iterations", agree_within);
  if (!verdict.best) {
    verdict.reason = fmt::format("no strategy named has {} and nothing against it", rule);
    return verdict;
  }
  const Candidate& best = candidates[*verdict.best];
  verdict.reason = fmt::format("{}: {} an iteration, the quickest with {}", best.name,
                               to_human(best.iteration), rule);
  if (quickest != &best) {
    verdict.reason += fmt::format(
        "; {} would take {}, but {}", quickest->name, to_human(quickest->iteration),
        quickest->drawback.empty() ? "its workers agree later" : "it " + quickest->drawback);
  }
  return verdict;
}

ClusterShape shape_of(const topology::Topology& topology, Bytes size, Duration alpha) {
  ClusterShape shape{.workers = static_cast<double>(topology.host_count()),
                     .racks = static_cast<double>(plan::innermost_groups(topology).size()),
                     .size = size,
                     .alpha = alpha,
                     .beta_inside = 0,
                     .beta_between = 0};
  for (const topology::Link& link : topology.links()) {
    const double beta = 1 / link.spec.rate.bytes_per_second();
    const bool inside = topology.node(link.a).region == topology.node(link.b).region;
    if (inside) shape.beta_inside = std::max(shape.beta_inside, beta);
    // Traffic between regions has also crossed a link within one.
    shape.beta_between = std::max(shape.beta_between, beta);
  }
  if (shape.beta_inside == 0) shape.beta_inside = shape.beta_between;
  return shape;
}

std::optional<Duration> cost_by_table(std::string_view strategy, const ClusterShape& shape) {
  const std::string_view name = strategy.substr(0, strategy.find(':'));
  const double n = shape.workers;
  const double c = shape.racks;
  const double g = shape.rack_size();
  const double a = shape.alpha.s();
  const auto s = static_cast<double>(shape.size.count());
  const double inside = s * shape.beta_inside;
  const double between = s * shape.beta_between;
  const auto seconds = [](double value) { return Duration::seconds(value); };
  if (name == "ps" || name == "asp" || name == "ssp") {
    return seconds(2 * (n - 1) * a + 2 * ((c - 1) * g * between + (g - 1) * inside));
  }
  if (name == "ring") return seconds(2 * (n - 1) * a + 2 * (n - 1) / n * between);
  if (name == "double-tree") {
    const double steps = std::log2(n) + kTreeChunks;
    return seconds(2 * steps * a + 2 * steps / kTreeChunks * between);
  }
  if (name == "hierarchical") {
    return seconds(2 * (g + c - 2) * a + 2 * (g - 1) / g * inside + 2 * (c - 1) / c * between);
  }
  if (name == "gossip") return seconds(2 * a + 4 * between);
  if (name == "ds-sync") {
    const double across = 2 * a + 2 * between;
    const double rack = g > 2 ? 2 * (g - 1) * a + 2 * (g - 2) / (g - 1) * inside : 0;
    return seconds(std::max(across, rack));
  }
  return std::nullopt;
}

}  // namespace thalweg::sync
