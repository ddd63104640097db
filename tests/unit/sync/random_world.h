// Random worlds for the tests of src/sync: shapes of racks, nested regions, and their bottlenecks.
#pragma once

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/prng.h"
#include "sync/schedule.h"
#include "topology/topology.h"

namespace thalweg::sync::worlds {

inline std::vector<int> random_racks(Prng& random) {
  std::vector<int> sizes(1 + random.below(7));
  // In small racks, turning in step leaves workers disconnected.
  const std::uint64_t most = random.chance(0.5) ? 2 : 9;
  for (int& size : sizes) size = 1 + static_cast<int>(random.below(most));
  if (sizes.size() == 1 && sizes[0] == 1) sizes[0] = 2;
  return sizes;
}

// Nested regions, at most three levels deep, with hosts at any level.
inline topology::Topology random_nested(Prng& random) {
  topology::TopologyBuilder builder("nested");
  const topology::LinkSpec link{
      .rate = Bandwidth::gbps(10), .delay = Duration::microseconds(1), .buffer = {}};
  struct Place {
    topology::RegionId region;
    topology::NodeId sw;
    int depth;
  };
  std::vector<Place> open{
      {topology::kWholeNetwork, *builder.add_switch("core", topology::kWholeNetwork), 0}};
  int hosts = 0;
  for (std::size_t i = 0; i < open.size(); ++i) {
    const Place at = open[i];
    const auto children = at.depth < 3 ? random.below(4 - static_cast<std::uint64_t>(at.depth)) : 0;
    for (std::uint64_t c = 0; c < children; ++c) {
      const std::string name = fmt::format("region{}", open.size());
      const topology::RegionId region = *builder.add_region(name, at.region);
      const topology::NodeId sw = *builder.add_switch(name + "-switch", region);
      CHECK(builder.add_link(sw, at.sw, link).ok());
      open.push_back({region, sw, at.depth + 1});
    }
    const std::uint64_t own = children == 0 ? 1 + random.below(4) : random.below(2);
    for (std::uint64_t h = 0; h < own || (i + 1 == open.size() && hosts < 2); ++h) {
      const topology::NodeId host = *builder.add_host(fmt::format("host{}", hosts++), at.region);
      CHECK(builder.add_link(host, at.sw, link).ok());
    }
  }
  return std::move(*std::move(builder).build());
}

inline Bottlenecks random_bottlenecks(const WorkerTree& tree, Prng& random) {
  Bottlenecks slow;
  const double of_regions = random.real() * random.real();
  const double of_workers = random.chance(0.5) ? 0 : random.real() * random.real();
  for (int r = 1; r < static_cast<int>(tree.regions().size()); ++r) {
    if (random.chance(of_regions)) slow.regions.push_back(r);
  }
  for (Rank w(0); w.value() < tree.worker_count(); ++w) {
    if (random.chance(of_workers)) slow.workers.push_back(w);
  }
  return slow;
}

inline WorkerTree racks_of(std::initializer_list<int> sizes) {
  return *WorkerTree::from_rack_sizes(std::vector<int>(sizes));
}

}  // namespace thalweg::sync::worlds
