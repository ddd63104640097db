#include "plan/predict.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace thalweg::plan {
namespace {

// Above this many flows a path, the deviation of the fullest is that of a normal distribution.
constexpr double kManyFlows = 32;
// An arc with fewer flows than this has one at a time.
constexpr double kSeveral = 1.5;
// So many pairs of a round are asked for their latency.
constexpr std::size_t kSampledPairs = 16;

}  // namespace

// For few flows: E[max] = Σ P(max > x), with paths taken as independent binomials.
double fullest_path(double flows, double paths) {
  const double mean = flows / paths;
  if (paths < 1 + 1e-9) return flows;
  if (mean > kManyFlows) return mean + std::sqrt(2 * mean * std::log(paths));
  const double chance = 1 / paths;
  double term = std::pow(1 - chance, flows);  // P(exactly x flows)
  double below = 0;                           // P(at most x)
  double expected = 0;
  for (double x = 0; x < flows; x += 1) {
    below += term;
    expected += 1 - std::pow(std::min(below, 1.0), paths);
    term *= (flows - x) / (x + 1) * chance / (1 - chance);
  }
  return std::clamp(expected, std::ceil(mean - 1e-9), flows);
}

Predictor::Predictor(const topology::Topology& topology, const topology::Routing& routing,
                     const CostOptions& options)
    : options_(options),
      loads_(topology, routing),
      rates_(topology.arc_count()),
      at_host_(topology.arc_count()),
      totals_(topology.arc_count()) {
  for (std::size_t a = 0; a < rates_.size(); ++a) {
    const topology::Arc arc = topology.arc(topology::ArcId(static_cast<std::int32_t>(a)));
    rates_[a] = arc.spec.rate.bytes_per_second();
    at_host_[a] = topology.rank_of(arc.from).valid() || topology.rank_of(arc.to).valid();
  }
}

// The longest latency among some pairs, spread over the round.
double Predictor::latency_of(const OutlineRound& round, double message) const {
  const Bytes packet(
      static_cast<std::int64_t>(std::min(message, static_cast<double>(options_.payload.count())) +
                                static_cast<double>(options_.header.count())));
  double longest = 0;
  const auto look_at = [&](Rank from, Rank to) {
    if (from != to) longest = std::max(longest, loads_.packet_time(from, to, packet).s());
  };
  const std::size_t stride = std::max<std::size_t>(1, round.flows.size() / kSampledPairs);
  for (std::size_t i = 0; i < round.flows.size(); i += stride) {
    look_at(round.flows[i].from, round.flows[i].to);
  }
  const std::size_t step = std::max<std::size_t>(1, round.exchanges.size() / kSampledPairs);
  for (std::size_t i = 0; i < round.exchanges.size(); i += step) {
    const OutlineExchange& exchange = round.exchanges[i];
    if (exchange.from.empty() || exchange.to.empty()) continue;
    look_at(exchange.from.front().rank, exchange.to.back().rank);
    look_at(exchange.from.back().rank, exchange.to.front().rank);
  }
  return longest;
}

Predictor::RoundTime Predictor::time_of(const OutlineRound& round, double message, bool gaps) {
  for (const OutlineFlow& flow : round.flows) loads_.add(flow.from, flow.to, flow.bytes);
  for (const OutlineExchange& exchange : round.exchanges) {
    loads_.add_exchange(exchange.from, exchange.to);
  }
  const std::span<const topology::ArcLoad> loads = loads_.take();
  const auto payload = static_cast<double>(options_.payload.count());
  const double packets = std::ceil(message / payload);
  const double with_header = 1 + packets * static_cast<double>(options_.header.count()) / message;
  const double acknowledged =
      packets * static_cast<double>(options_.acknowledgement.count()) / message;
  RoundTime time;
  const double latency = latency_of(round, message);
  time.latency = latency + options_.per_message.s();
  const double gap = latency + options_.per_follow_up.s();
  for (std::size_t a = 0; a < loads.size(); ++a) {
    const topology::ArcLoad& load = loads[a];
    if (load.flows == 0) continue;
    const double spread = load.flows / load.shares;
    const double uneven = fullest_path(load.flows, spread) / load.shares;
    // The two arcs of a link differ in the lowest bit.
    const double bytes = load.bytes * with_header + loads[a ^ 1].bytes * acknowledged;
    double busy = bytes * uneven / rates_[a];
    if (load.flows < kSeveral && gaps) {
      busy += std::max(0.0, load.bytes * uneven / message - 1) * gap;
    }
    totals_[a] += busy * round.repeat;
    time.busiest = std::max(time.busiest, busy);
    if (at_host_[a]) time.at_hosts = std::max(time.at_hosts, busy);
    if (load.shares * uneven < kSeveral) continue;
    const double wave = std::min(load.shares * message, load.bytes) * uneven * with_header;
    time.wave = std::max(time.wave, wave / rates_[a]);
  }
  return time;
}

Prediction Predictor::predict(const Outline& outline) {
  Prediction result;
  result.steps = outline.steps();
  if (outline.chunk <= 0 || outline.rounds.empty()) return result;
  std::fill(totals_.begin(), totals_.end(), 0.0);
  const double parts =
      std::max(1.0, std::ceil(outline.chunk / static_cast<double>(options_.message.count())));
  const double message = std::max(1.0, outline.chunk / parts);
  const double overlapping = parts * outline.units;
  double sum = 0;
  double latency = 0;
  double incast = 0;
  double drift = 0;
  double before = 0;
  for (std::size_t r = 0; r < outline.rounds.size(); ++r) {
    const OutlineRound& round = outline.rounds[r];
    // Rounds that overlap fill one another's gaps, unless they are on the same connections.
    const RoundTime time = time_of(round, message, round.repeat > 1 || overlapping < 2);
    const bool last = r + 1 == outline.rounds.size();
    sum += time.busiest * round.repeat;
    latency += time.latency * round.repeat;
    // Nothing waits for the end of the last round, but its parts wait for one another.
    incast += time.wave / 2 * (round.repeat - (last && parts < 2 ? 1 : 0));
    // Where an arc between switches decides, its flows take turns anyway.
    const double at_hosts = time.at_hosts < time.busiest ? 0 : time.at_hosts;
    drift += std::min(at_hosts, before / 2) * outline.drift;
    before = at_hosts;
  }
  const auto busiest = std::ranges::max_element(totals_);
  const double unfilled = std::max(0.0, sum - *busiest) / overlapping;
  result.busiest = Duration::seconds(*busiest);
  result.unfilled = Duration::seconds(unfilled);
  result.latency = Duration::seconds(latency);
  result.incast = Duration::seconds(incast);
  result.drift = Duration::seconds(drift);
  result.busiest_arc = topology::ArcId(static_cast<std::int32_t>(busiest - totals_.begin()));
  result.total = Duration::seconds(*busiest + unfilled + latency + incast + drift);
  return result;
}

}  // namespace thalweg::plan
