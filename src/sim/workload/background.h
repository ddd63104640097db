// Background traffic: flows that arrive at random times (a Poisson process) between hosts chosen by
// a pattern.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "sim/core/network.h"
#include "sim/workload/flow_sizes.h"

namespace thalweg::sim {

struct BackgroundOptions {
  enum class Pattern : std::uint8_t {
    kRandom,       // each arrival: a random source sends to another random host
    kPermutation,  // every source keeps one target, and no target has two sources
    kIncast,       // each arrival: every source sends to one random target
  };
  Pattern pattern = Pattern::kRandom;
  FlowSizes sizes = FlowSizes::fixed(Bytes(1'000'000));
  Duration every;  // mean time between arrivals
  std::vector<Rank> sources;
  std::vector<Rank> targets;  // kPermutation: ignored, the sources are the targets
  Duration start;
  std::optional<Duration> stop;          // none: as long as there is other work
  std::optional<std::uint64_t> at_most;  // number of arrivals
  std::uint64_t tag = 0;                 // given to its flows
};

// The mean time between arrivals that loads the sources' links to the share `load` on average.
Duration arrivals_for_load(const BackgroundOptions& options, const topology::Topology& topology,
                           double load);

class BackgroundTraffic {
 public:
  // Requires a target other than itself for every source. `work_left` says whether there is other
  // work.
  BackgroundTraffic(BackgroundOptions options, Network& network, const TransportFactory& transport,
                    std::uint64_t seed, std::function<bool()> work_left);

  void start();

 private:
  void schedule(Time after);
  void arrive();
  void send(Rank source, Rank target);
  Rank other_than(Rank source);

  const BackgroundOptions options_;
  Network& network_;
  const TransportFactory& transport_;
  Prng prng_;
  std::function<bool()> work_left_;
  std::vector<Rank> partner_;  // kPermutation: the target of each source
  std::uint64_t arrivals_ = 0;
};

}  // namespace thalweg::sim
