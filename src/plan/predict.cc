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
// Flows choose where they could use more arcs than they load; arcs within kAbout of one another are
// equal.
constexpr double kExact = 1e-9;
constexpr double kAbout = 0.99;
// Where an arc between switches decides a round, its flows take turns and lose only this part of
// what the drift of hosts' links would be.
constexpr double kBetweenSwitches = 0.3;
// Where an arc between switches decides the whole, it waits for hosts before it has enough to send
// all the time, and hosts wait for its last packets: for this part of the rounds that hosts decide.
constexpr double kUnfed = 0.25;
// So many pairs of a round are asked for their latency.
constexpr std::size_t kSampledPairs = 16;

}  // namespace

// For few flows: E[max] = Σ P(max > x), with paths taken as independent binomials.
double fullest_path(double flows, double paths, double of_paths) {
  const double mean = flows / paths;
  if (paths < 1 + 1e-9) return flows;
  of_paths = std::max(of_paths, paths);
  if (mean > kManyFlows) return mean + std::sqrt(2 * mean * std::log(of_paths));
  const double chance = 1 / paths;
  double term = std::pow(1 - chance, flows);  // P(exactly x flows)
  double below = 0;                           // P(at most x)
  double expected = 0;
  for (double x = 0; x < flows; x += 1) {
    below += term;
    expected += 1 - std::pow(std::min(below, 1.0), of_paths);
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
      busy_(topology.arc_count()),
      totals_(topology.arc_count()),
      by_hosts_(topology.arc_count()) {
  for (std::size_t a = 0; a < rates_.size(); ++a) {
    const topology::Arc arc = topology.arc(topology::ArcId(static_cast<std::int32_t>(a)));
    rates_[a] = arc.spec.rate.bytes_per_second();
    at_host_[a] = topology.rank_of(arc.from).valid() || topology.rank_of(arc.to).valid();
  }
}

// The longest latency among some pairs, spread over the round.
double Predictor::latency_of(const OutlineRound& round, double payload) const {
  const Bytes packet(
      static_cast<std::int64_t>(payload + static_cast<double>(options_.header.count())));
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

// How many arcs of the round carry about as much as the fullest of those that flows choose from: so
// many paths are drawn, and all ranks wait for the fullest.
double Predictor::equal_choices(std::span<const topology::ArcLoad> loads) const {
  const auto time_on = [&](std::size_t a) {
    const topology::ArcLoad& load = loads[a];
    return load.flows > load.shares * (1 + kExact) ? load.bytes / rates_[a] : 0;
  };
  double most = 0;
  for (std::size_t a = 0; a < loads.size(); ++a) most = std::max(most, time_on(a));
  double count = 0;
  for (std::size_t a = 0; a < loads.size(); ++a) {
    if (most > 0 && time_on(a) >= most * kAbout) count += 1;
  }
  return count;
}

Predictor::RoundTime Predictor::time_of(const OutlineRound& round, double chunk) {
  for (const OutlineFlow& flow : round.flows) loads_.add(flow.from, flow.to, flow.bytes);
  for (const OutlineExchange& exchange : round.exchanges) {
    loads_.add_exchange(exchange.from, exchange.to);
  }
  const std::span<const topology::ArcLoad> loads = loads_.take();
  const auto payload = static_cast<double>(options_.payload.count());
  const double packets = std::ceil(chunk / payload);
  const double with_header = 1 + packets * static_cast<double>(options_.header.count()) / chunk;
  const double acknowledged =
      packets * static_cast<double>(options_.acknowledgement.count()) / chunk;
  const double choices = equal_choices(loads);
  RoundTime time;
  double further = 0;  // messages of a host beside its first
  time.latency = latency_of(round, std::min(chunk, payload)) + options_.per_message.s();
  for (std::size_t a = 0; a < loads.size(); ++a) {
    const topology::ArcLoad& load = loads[a];
    busy_[a] = 0;
    if (load.flows == 0) continue;
    const double paths = load.flows / load.shares;
    const double uneven = fullest_path(load.flows, paths, choices) / load.shares;
    // The two arcs of a link differ in the lowest bit.
    const double bytes = load.bytes * with_header + loads[a ^ 1].bytes * acknowledged;
    busy_[a] = bytes * uneven / rates_[a];
    totals_[a] += busy_[a] * round.repeat;
    time.busiest = std::max(time.busiest, busy_[a]);
    if (!at_host_[a]) continue;
    time.at_hosts = std::max(time.at_hosts, busy_[a]);
    if (load.flows < kSeveral) continue;
    further = std::max(further, load.flows - 1);
    const double queue = host_queue(options_, rates_[a]);
    time.wave = std::max(time.wave, std::min(queue, load.bytes) / rates_[a]);
  }
  time.latency += further * options_.per_follow_up.s();
  if (time.by_hosts()) {
    for (std::size_t a = 0; a < busy_.size(); ++a) {
      if (at_host_[a]) by_hosts_[a] += busy_[a] * round.repeat;
    }
  }
  return time;
}

Prediction Predictor::predict(const Outline& outline) {
  Prediction result;
  result.steps = outline.steps();
  if (outline.chunk <= 0 || outline.rounds.empty()) return result;
  std::ranges::fill(totals_, 0.0);
  std::ranges::fill(by_hosts_, 0.0);
  const double chunk = std::max(1.0, outline.chunk);
  const double overlapping =
      std::ceil(chunk / static_cast<double>(options_.payload.count())) * outline.units;
  double sum = 0;
  double latency = 0;
  double incast = 0;
  double drift = 0;
  double before = 0;
  for (std::size_t r = 0; r < outline.rounds.size(); ++r) {
    const OutlineRound& round = outline.rounds[r];
    const RoundTime time = time_of(round, chunk);
    const int again = round.repeat - 1;
    sum += time.busiest * round.repeat;
    // A rank that repeats a round sends on while its packets are under way.
    const double idle = std::max(0.0, time.latency - time.busiest);
    latency += time.latency + again * (idle + options_.per_follow_up.s());
    // Nothing waits for the end of the last round.
    incast += time.wave * (r + 1 == outline.rounds.size() ? again : round.repeat);
    const double taken = time.busiest * round.repeat * (time.by_hosts() ? 1 : kBetweenSwitches);
    drift += std::min(taken, before / 2) * round.drift.value_or(outline.drift);
    before = taken;
  }
  const auto busiest = std::ranges::max_element(totals_);
  const auto arc = busiest - totals_.begin();
  if (!at_host_[static_cast<std::size_t>(arc)]) {
    drift = kUnfed * std::min(*std::ranges::max_element(by_hosts_), *busiest);
  }
  const double overlapped = std::max(0.0, sum - *busiest);
  const double unfilled = overlapped / overlapping;
  result.busiest = Duration::seconds(*busiest);
  result.unfilled = Duration::seconds(unfilled);
  result.latency = Duration::seconds(latency);
  result.incast = Duration::seconds(incast);
  result.drift = Duration::seconds(drift);
  result.overlapped = Duration::seconds(overlapped);
  result.busiest_arc = topology::ArcId(static_cast<std::int32_t>(arc));
  result.total = Duration::seconds(*busiest + unfilled + latency + incast + drift);
  return result;
}

}  // namespace thalweg::plan
