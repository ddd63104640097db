#include "plan/schemes_networks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace thalweg::plan {
namespace {

constexpr topology::LinkSpec kLink{
    .rate = Bandwidth::gbps(10), .delay = Duration::microseconds(1), .buffer = Bytes(0)};

class NetworkWriter {
 public:
  NetworkWriter() : builder_("test") {}

  topology::RegionId region(topology::RegionId parent) {
    return *builder_.add_region(fmt::format("region{}", regions_++), parent);
  }
  topology::NodeId add_switch(topology::RegionId region) {
    return *builder_.add_switch(fmt::format("switch{}", switches_++), region);
  }
  void add_host(topology::NodeId leaf, topology::RegionId region) {
    link(*builder_.add_host(fmt::format("host{}", hosts_++), region), leaf);
  }
  void link(topology::NodeId a, topology::NodeId b) { CHECK(builder_.add_link(a, b, kLink).ok()); }
  topology::Topology build() && {
    auto topology = std::move(builder_).build();
    CHECK(topology.ok(), "{}", topology.error().message());
    return *std::move(topology);
  }

 private:
  topology::TopologyBuilder builder_;
  int regions_ = 0;
  int switches_ = 0;
  int hosts_ = 0;
};

// `parts` sizes that sum to n, as equal as possible.
std::vector<int> split(int n, int parts) {
  std::vector<int> sizes(static_cast<std::size_t>(parts), n / parts);
  for (int i = 0; i < n % parts; ++i) ++sizes[static_cast<std::size_t>(i)];
  return sizes;
}

}  // namespace

TestNetwork rack_network(const std::vector<int>& sizes, bool interleaved) {
  NetworkWriter writer;
  std::vector<topology::RegionId> regions;
  std::vector<topology::NodeId> leaves;
  const bool one_rack = sizes.size() == 1;
  const topology::NodeId spine = writer.add_switch(topology::kWholeNetwork);
  for (std::size_t rack = 0; rack < sizes.size(); ++rack) {
    regions.push_back(one_rack ? topology::kWholeNetwork : writer.region(topology::kWholeNetwork));
    leaves.push_back(one_rack ? spine : writer.add_switch(regions[rack]));
    if (!one_rack) writer.link(leaves[rack], spine);
  }
  if (interleaved) {
    const int largest = *std::max_element(sizes.begin(), sizes.end());
    for (int i = 0; i < largest; ++i) {
      for (std::size_t rack = 0; rack < sizes.size(); ++rack) {
        if (i < sizes[rack]) writer.add_host(leaves[rack], regions[rack]);
      }
    }
  } else {
    for (std::size_t rack = 0; rack < sizes.size(); ++rack) {
      for (int i = 0; i < sizes[rack]; ++i) writer.add_host(leaves[rack], regions[rack]);
    }
  }
  return {fmt::format("racks {}{}", fmt::join(sizes, "+"), interleaved ? " interleaved" : ""),
          std::move(writer).build()};
}

TestNetwork pod_network(const std::vector<std::vector<int>>& pods, int beside) {
  NetworkWriter writer;
  const topology::NodeId core = writer.add_switch(topology::kWholeNetwork);
  for (std::size_t p = 0; p < pods.size(); ++p) {
    const topology::RegionId pod = writer.region(topology::kWholeNetwork);
    const topology::NodeId aggregation = writer.add_switch(pod);
    writer.link(aggregation, core);
    for (const int hosts : pods[p]) {
      const topology::RegionId rack = writer.region(pod);
      const topology::NodeId leaf = writer.add_switch(rack);
      writer.link(leaf, aggregation);
      for (int i = 0; i < hosts; ++i) writer.add_host(leaf, rack);
    }
    if (p == 0) {
      for (int i = 0; i < beside; ++i) writer.add_host(aggregation, pod);
    }
  }
  return {fmt::format("pods {} and {} beside", fmt::join(pods, " "), beside),
          std::move(writer).build()};
}

std::vector<TestNetwork> networks_of(int ranks) {
  std::vector<TestNetwork> networks;
  networks.push_back(rack_network({ranks}));
  for (const int racks : {2, 3, 4}) {
    if (ranks < racks) continue;
    networks.push_back(rack_network(split(ranks, racks)));
  }
  if (ranks >= 3) {
    networks.push_back(rack_network({1, ranks - 1}));
    networks.push_back(rack_network({ranks - ranks / 3, ranks / 3}, /*interleaved=*/true));
  }
  if (ranks >= 6) {
    networks.push_back(rack_network({ranks - 3, 1, 2}));
    networks.push_back(pod_network({split(ranks / 2, 2), split(ranks - ranks / 2, 3)}));
    networks.push_back(pod_network({{ranks - 5, 1}, {1, 1}}, /*beside=*/2));
  }
  if (ranks >= 8 && ranks % 8 == 0) {
    const int n = ranks / 8;
    networks.push_back(pod_network({{n, n}, {n, n}, {n, n}, {n, n}}));
  }
  return networks;
}

}  // namespace thalweg::plan
