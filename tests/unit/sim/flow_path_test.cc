// Flows that name which of the equally short paths they take.
#include <gtest/gtest.h>

#include "fabric_fixture.h"
#include "topology/routing.h"

namespace thalweg::sim::fixture {
namespace {

constexpr int kSpines = 3;

const topology::Topology& leaf_spine() {
  static const topology::Topology network =
      topology("leaf-spine:racks=2,hosts=2,spines=3,host=10G,uplink=10G");
  return network;
}

NetworkOptions balanced(LoadBalancing balancing) {
  NetworkOptions options;
  options.balancing = balancing;
  return options;
}

class FlowPath : public ::testing::TestWithParam<LoadBalancing> {};

TEST_P(FlowPath, start_flow__data_and_acknowledgements_keep_the_path_whatever_the_balancing) {
  const WindowTransport transport({});
  constexpr std::uint64_t kPackets = 20;
  for (std::int32_t path = 0; path < kSpines; ++path) {
    SCOPED_TRACE(path);
    Bench bench(leaf_spine(), balanced(GetParam()));
    bench.network.start_flow({.source = Rank(0),
                              .target = Rank(2),
                              .bytes = kPackets * kFull,
                              .transport = &transport,
                              .path = path});
    bench.run_to_the_end();
    const topology::Routing routing(leaf_spine());
    const auto there = routing.paths(Rank(0), Rank(2), 10);
    const auto back = routing.paths(Rank(2), Rank(0), 10);
    ASSERT_EQ(there.size(), static_cast<std::size_t>(kSpines));
    for (std::size_t p = 0; p < there.size(); ++p) {
      const bool taken = p == static_cast<std::size_t>(path);
      EXPECT_EQ(bench.network.arc_bytes()[there[p][1].index()], taken ? kPackets * 1500 : 0);
      EXPECT_EQ(bench.network.arc_bytes()[back[p][1].index()], taken ? kPackets * 40 : 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Balancing, FlowPath,
                         ::testing::Values(LoadBalancing::kFlowHash, LoadBalancing::kPerPacket,
                                           LoadBalancing::kLabel));

TEST(FixedPath, start_flow__labels_of_a_fat_tree_name_every_path_once) {
  const topology::Topology network = topology("fat-tree:k=4");
  const WindowTransport transport({});
  const Rank last(network.host_count() - 1);
  const auto paths = topology::Routing(network).paths(Rank(0), last, 100);
  ASSERT_EQ(paths.size(), 4U);
  Bench bench(network, {});
  for (std::int32_t path = 0; path < 4; ++path) {
    bench.network.start_flow(
        {.source = Rank(0), .target = last, .bytes = kFull, .transport = &transport, .path = path});
  }
  bench.run_to_the_end();
  // The third hop is the first that two paths do not share.
  for (const auto& path : paths) EXPECT_EQ(bench.network.arc_bytes()[path[2].index()], 1500U);
}

TEST(FixedPath, start_flow__a_fixed_path_leaves_the_choices_of_others_alone) {
  const WindowTransport transport({});
  const auto bytes_up = [&](std::int32_t path) {
    Bench bench(leaf_spine(), {});
    bench.network.start_flow({.source = Rank(1),
                              .target = Rank(3),
                              .bytes = kFull,
                              .transport = &transport,
                              .path = path});
    bench.network.start_flow(
        {.source = Rank(0), .target = Rank(2), .bytes = 1000 * kFull, .transport = &transport});
    bench.run_to_the_end();
    std::vector<bool> by_spine;
    for (const auto& way : topology::Routing(leaf_spine()).paths(Rank(0), Rank(2), 10)) {
      by_spine.push_back(bench.network.arc_bytes()[way[1].index()] >= 1000 * kFull);
    }
    return by_spine;
  };
  const std::vector<bool> free_choice = bytes_up(-1);
  for (std::int32_t path = 0; path < kSpines; ++path) EXPECT_EQ(bytes_up(path), free_choice);
}

}  // namespace
}  // namespace thalweg::sim::fixture
