#include "sim/workload/background.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace thalweg::sim {

Duration arrivals_for_load(const BackgroundOptions& options, const topology::Topology& topology,
                           double load) {
  double bytes_per_second = 0;
  for (const Rank rank : options.sources) {
    for (const topology::ArcId arc : topology.arcs_from(topology.host(rank))) {
      bytes_per_second += topology.arc(arc).spec.rate.bytes_per_second();
    }
  }
  const double flows = options.pattern == BackgroundOptions::Pattern::kIncast
                           ? static_cast<double>(options.sources.size())
                           : 1;
  return Duration::seconds(options.sizes.mean_bytes() * flows / (bytes_per_second * load));
}

BackgroundTraffic::BackgroundTraffic(BackgroundOptions options, Network& network,
                                     const TransportFactory& transport, std::uint64_t seed,
                                     std::function<bool()> work_left)
    : options_(std::move(options)),
      network_(network),
      transport_(transport),
      prng_(seed),
      work_left_(std::move(work_left)) {
  CHECK(options_.every > Duration());
  if (options_.pattern == BackgroundOptions::Pattern::kPermutation) {
    // Every source sends to the next one in a random circle, so none sends to itself.
    std::vector<Rank> circle = options_.sources;
    prng_.shuffle(std::span(circle));
    partner_.resize(circle.size());
    for (std::size_t i = 0; i < circle.size(); ++i) {
      const auto place = std::ranges::find(options_.sources, circle[i]);
      partner_[static_cast<std::size_t>(place - options_.sources.begin())] =
          circle[(i + 1) % circle.size()];
    }
  }
}

void BackgroundTraffic::start() { schedule(Time::at(options_.start)); }

void BackgroundTraffic::schedule(Time after) {
  if (options_.at_most && arrivals_ == *options_.at_most) return;
  const Time next = after + Duration::seconds(-std::log1p(-prng_.real()) * options_.every.s());
  if (options_.stop && next >= Time::at(*options_.stop)) return;
  network_.call_at(next, [this] { arrive(); });
}

void BackgroundTraffic::arrive() {
  const bool endless = !options_.stop && !options_.at_most;
  if (endless && !work_left_()) return;
  ++arrivals_;
  switch (options_.pattern) {
    case BackgroundOptions::Pattern::kRandom: {
      const Rank source = options_.sources[prng_.below(options_.sources.size())];
      send(source, other_than(source));
      break;
    }
    case BackgroundOptions::Pattern::kPermutation: {
      const std::uint64_t chosen = prng_.below(options_.sources.size());
      send(options_.sources[chosen], partner_[chosen]);
      break;
    }
    case BackgroundOptions::Pattern::kIncast: {
      const Rank target = options_.targets[prng_.below(options_.targets.size())];
      for (const Rank source : options_.sources) {
        if (source != target) send(source, target);
      }
      break;
    }
  }
  schedule(network_.now());
}

Rank BackgroundTraffic::other_than(Rank source) {
  for (;;) {
    const Rank target = options_.targets[prng_.below(options_.targets.size())];
    if (target != source) return target;
  }
}

void BackgroundTraffic::send(Rank source, Rank target) {
  network_.start_flow({.source = source,
                       .target = target,
                       .bytes = static_cast<std::uint64_t>(options_.sizes.draw(prng_).count()),
                       .transport = &transport_,
                       .warm = false,
                       .tag = options_.tag});
}

}  // namespace thalweg::sim
