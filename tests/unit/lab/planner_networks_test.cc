// The planner's ranking of schemes against the packet simulator's, on random networks.
//
// The short form runs kShort small networks; THALWEG_PLANS=long (`make plans`) runs 50, and
// THALWEG_PLANS=SEED runs one. Every network is printed with its seed.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "base/prng.h"
#include "lab/bench/allreduce/simulated.h"
#include "plan/planner.h"
#include "sanitized.h"
#include "topology/format/load.h"

namespace thalweg::lab {
namespace {

constexpr int kShort = kUnderSanitizer ? 2 : 12;
constexpr int kLong = 50;
constexpr double kLeastTau = 0.8;       // on the mean over the networks
constexpr double kMostOverBest = 1.25;  // on each network
// A stream keeps to one of several equal paths. Where there are any, the simulated time is the mean
// over so many draws of the paths, because nobody can know the draw.
constexpr std::uint64_t kDraws = 3;
constexpr std::int64_t kShortBytes = 1 << 20;  // the short form's largest tensor

struct Case {
  std::string network;
  std::int64_t bytes = 0;
};

// A switch with 4 to 16 hosts, or 2 to 4 racks of 2 to 4 hosts; 100 Mb/s to 10 Gb/s; 256 KB to
// 16 MB.
Case draw(std::uint64_t seed) {
  constexpr std::array kRates{"100M", "200M", "500M", "1G", "2G", "5G", "10G"};
  Prng random(seed);
  const auto rate = static_cast<std::size_t>(random.below(kRates.size()));
  Case drawn;
  drawn.bytes = static_cast<std::int64_t>(256e3 * std::exp2(random.real() * 6)) / 4 * 4;
  if (random.chance(0.4)) {
    drawn.network =
        fmt::format("single-switch:hosts={},host={}", 4 + random.below(13), kRates[rate]);
    return drawn;
  }
  const std::array uplinks{rate, std::min(rate + 1, kRates.size() - 1), rate == 0 ? 0 : rate - 1};
  const auto racks = 2 + random.below(3);
  const auto hosts = 2 + random.below(3);
  const auto spines = 1 + random.below(2);
  drawn.network = fmt::format("leaf-spine:racks={},hosts={},spines={},host={},uplink={}", racks,
                              hosts, spines, kRates[rate], kRates[uplinks[random.below(3)]]);
  return drawn;
}

// Kendall's tau-b, which does not count pairs that are tied on both sides.
double tau(const std::vector<double>& a, const std::vector<double>& b) {
  const auto order = [](double x, double y) {
    return std::abs(x / y - 1) < 1e-6 ? 0 : (x < y ? -1 : 1);
  };
  double agreed = 0;
  double pairs_a = 0;
  double pairs_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const int in_a = order(a[i], a[j]);
      const int in_b = order(b[i], b[j]);
      agreed += in_a * in_b;
      pairs_a += in_a != 0 ? 1 : 0;
      pairs_b += in_b != 0 ? 1 : 0;
    }
  }
  return pairs_a * pairs_b > 0 ? agreed / std::sqrt(pairs_a * pairs_b) : 1;
}

struct Agreement {
  double tau = 0;
  double over_best = 0;  // the simulated time of what the planner takes, over the best
};

Agreement compare(std::uint64_t seed, const Case& drawn) {
  const topology::Topology network = topology::topology_from_shorthand(drawn.network).value();
  const topology::Routing routing(network);
  const plan::PlanRequest request{.topology = network, .elements = drawn.bytes / 4};
  // Processors take no time in the simulator.
  plan::PlannerOptions options;
  options.cost.per_message = Duration();
  options.cost.per_follow_up = Duration();
  plan::Predictor predictor(network, routing, options.cost);
  const std::uint64_t draws = drawn.network.find("spines=2") == std::string::npos ? 1 : kDraws;
  const auto simulated_ms = [&](const std::string& scheme) {
    double sum = 0;
    for (std::uint64_t draw = 1; draw <= draws; ++draw) {
      const allreduce::SimulatedCall call{.transport = "tcp",
                                          .scheme = scheme,
                                          .size = Bytes(drawn.bytes),
                                          .calls = 5,
                                          .seed = draw};
      sum += allreduce::simulate(network, call).value().ms();
    }
    return sum / static_cast<double>(draws);
  };
  std::vector<double> predicted;
  std::vector<double> simulated;
  std::map<std::string, double> by_scheme;
  for (const plan::Scheme* scheme : plan::all_schemes()) {
    const auto& can = scheme->collectives;
    if (std::ranges::find(can, plan::Collective::kAllreduce) == can.end()) continue;
    const std::string name(scheme->name);
    predicted.push_back(predictor.predict(plan::make_outline(name, request).value()).total.ms());
    simulated.push_back(simulated_ms(name));
    by_scheme[name] = simulated.back();
  }
  const plan::SchemeChoice choice = plan::choose_scheme(request, routing, options).value();
  const auto known = by_scheme.find(choice.scheme);
  const double chosen = known != by_scheme.end() ? known->second : simulated_ms(choice.scheme);
  const double over = chosen / *std::ranges::min_element(simulated);
  const double agreement = tau(simulated, predicted);
  fmt::print("seed {}: {} {} B: tau {:.2f}, {} is {:.2f} times the best\n", seed, drawn.network,
             drawn.bytes, agreement, choice.scheme, over);
  EXPECT_LE(over, kMostOverBest) << "replay: THALWEG_PLANS=" << seed;
  return {.tau = agreement, .over_best = over};
}

TEST(PlannerNetworks, ranking__that_of_the_packet_simulator) {
  const char* const wanted = std::getenv("THALWEG_PLANS");
  const std::string mode = wanted == nullptr ? "" : wanted;
  if (!mode.empty() && mode != "long") {
    const auto seed = static_cast<std::uint64_t>(std::stoull(mode));
    compare(seed, draw(seed));
    return;
  }
  const int networks = mode == "long" ? kLong : kShort;
  double sum = 0;
  double over = 0;
  Agreement worst{.tau = 1, .over_best = 1};
  int compared = 0;
  for (std::uint64_t seed = 1; compared < networks; ++seed) {
    const Case drawn = draw(seed);
    if (mode != "long" && drawn.bytes > kShortBytes) continue;
    const Agreement one = compare(seed, drawn);
    sum += one.tau;
    over += one.over_best;
    worst.tau = std::min(worst.tau, one.tau);
    worst.over_best = std::max(worst.over_best, one.over_best);
    ++compared;
  }
  fmt::print(
      "{} networks: tau {:.3f} on the mean, {:.2f} at worst; what is taken is {:.3f} times the "
      "best on the mean, {:.2f} at worst\n",
      compared, sum / compared, worst.tau, over / compared, worst.over_best);
  // The mean of two networks says little.
  if (!kUnderSanitizer) {
    EXPECT_GE(sum / compared, kLeastTau);
  }
}

}  // namespace
}  // namespace thalweg::lab
