// Irregular networks, for tests that compare with an obvious implementation.
#pragma once

#include <fmt/core.h>

#include <vector>

#include "base/prng.h"
#include "topology/topology.h"

namespace thalweg::topology {

// A random tree of switches with further links among them; hosts are attached to one to three
// switches, and some have a link to each other. Regions nest at random. Hosts and switches
// interleave.
inline Topology random_topology(std::uint64_t seed) {
  Prng prng(seed);
  TopologyBuilder builder(fmt::format("random \"{}\" \\ é", seed));
  const auto spec = [&] {
    return LinkSpec{
        Bandwidth::bits_per_second(static_cast<std::int64_t>(1 + prng.below(1'000'000'000'000))),
        Duration::picoseconds(static_cast<std::int64_t>(prng.below(10'000'000))),
        Bytes(static_cast<std::int64_t>(prng.below(3) * 12'345))};
  };
  std::vector<RegionId> regions{kWholeNetwork};
  for (std::uint64_t i = prng.below(8); i > 0; --i) {
    const RegionId parent = regions[prng.below(regions.size())];
    regions.push_back(builder.add_region(fmt::format("region {}", i), parent).value());
  }
  const auto any_region = [&] { return regions[prng.below(regions.size())]; };
  std::vector<NodeId> switches;
  std::vector<NodeId> hosts;
  const std::uint64_t switch_count = 1 + prng.below(10);
  const std::uint64_t host_count = 1 + prng.below(12);
  while (switches.size() < switch_count || hosts.size() < host_count) {
    const bool add_switch =
        switches.empty() || (switches.size() < switch_count && prng.chance(0.5));
    if (add_switch || hosts.size() == host_count) {
      const NodeId id =
          builder.add_switch(fmt::format("s{}", switches.size()), any_region()).value();
      if (!switches.empty()) {
        (void)builder.add_link(id, switches[prng.below(switches.size())], spec()).value();
      }
      switches.push_back(id);
      continue;
    }
    const NodeId id = builder.add_host(fmt::format("h{}", hosts.size()), any_region()).value();
    for (std::uint64_t i = 1 + (prng.chance(0.3) ? prng.below(3) : 0); i > 0; --i) {
      (void)builder.add_link(id, switches[prng.below(switches.size())], spec()).value();
    }
    if (!hosts.empty() && prng.chance(0.15)) {
      (void)builder.add_link(hosts[prng.below(hosts.size())], id, spec()).value();
    }
    hosts.push_back(id);
  }
  for (std::uint64_t i = prng.below(2 * switches.size()); i > 0; --i) {
    const NodeId a = switches[prng.below(switches.size())];
    const NodeId b = switches[prng.below(switches.size())];
    if (a != b) (void)builder.add_link(a, b, spec()).value();
  }
  return std::move(builder).build().value();
}

}  // namespace thalweg::topology
