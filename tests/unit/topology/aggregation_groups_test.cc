#include "topology/aggregation_groups.h"

#include <gtest/gtest.h>

#include "topology/format/load.h"

namespace thalweg::topology {
namespace {

Topology topology_of(const char* text) { return topology_from_shorthand(text).value(); }

std::vector<Rank> ranks(std::initializer_list<int> numbers) {
  std::vector<Rank> result;
  for (const int number : numbers) result.emplace_back(number);
  return result;
}

// Three racks of 4.
constexpr const char* kRacks = "leaf-spine:racks=3,hosts=4,spines=2";

TEST(AggregationGroups, racks__are_groups_that_the_servers_switch_joins) {
  const Topology topology = topology_of(kRacks);
  const auto groups =
      aggregation_groups(topology, ranks({0, 4, 1, 5, 2}), ranks({6, 8}), [](NodeId) {
        return true;
      }).value();
  EXPECT_EQ(groups.members, (std::vector<std::size_t>{3, 2}));
  EXPECT_EQ(groups.workers[2].group, 0U);
  EXPECT_EQ(groups.workers[2].index, 1U);
  EXPECT_EQ(groups.workers[3].group, 1U);
  ASSERT_EQ(groups.sites.size(), 3U);
  EXPECT_FALSE(groups.sites[0].second_level);
  EXPECT_TRUE(groups.sites[1].second_level);  // a server beside the second group
  EXPECT_EQ(groups.sites[1].groups, (std::vector<std::size_t>{1}));
  EXPECT_TRUE(groups.sites[2].second_level);
  EXPECT_TRUE(groups.sites[2].groups.empty());
}

TEST(AggregationGroups, one_rack__has_no_second_level) {
  const Topology topology = topology_of(kRacks);
  const auto groups = aggregation_groups(topology, ranks({0, 1, 2}), ranks({3}), [](NodeId) {
                        return true;
                      }).value();
  ASSERT_EQ(groups.sites.size(), 1U);
  EXPECT_FALSE(groups.sites[0].second_level);
}

TEST(AggregationGroups, rack_without_aggregation__each_worker_is_a_group) {
  const Topology topology = topology_of(kRacks);
  const NodeId first = edge_switch_of(topology, Rank(0)).value();
  const auto groups =
      aggregation_groups(topology, ranks({0, 1, 4, 5}), ranks({3}), [&](NodeId node) {
        return node == first;
      }).value();
  EXPECT_EQ(groups.members, (std::vector<std::size_t>{2, 1, 1}));
  EXPECT_TRUE(groups.workers[0].first_level);
  EXPECT_FALSE(groups.workers[2].first_level);
  ASSERT_EQ(groups.sites.size(), 1U);
  EXPECT_TRUE(groups.sites[0].second_level);
}

TEST(AggregationGroups, limits__large_racks_are_split_and_too_many_groups_refused) {
  const Topology topology = topology_of("single-switch:hosts=8");
  const auto everywhere = [](NodeId) { return true; };
  const auto split = aggregation_groups(topology, ranks({0, 1, 2, 3, 4}), ranks({7}), everywhere,
                                        {.workers = 2, .groups = 3})
                         .value();
  EXPECT_EQ(split.members, (std::vector<std::size_t>{2, 2, 1}));
  EXPECT_TRUE(split.sites[0].second_level);
  const auto refused = aggregation_groups(topology, ranks({0, 1, 2, 3, 4}), ranks({7}), everywhere,
                                          {.workers = 2, .groups = 2});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message().find("at most 2"), std::string::npos);
}

TEST(AggregationGroups, host_without_edge_switch__is_named) {
  TopologyBuilder builder("");
  const NodeId a = builder.add_host("a", kWholeNetwork).value();
  const NodeId b = builder.add_host("b", kWholeNetwork).value();
  ASSERT_TRUE(builder.add_link(a, b, LinkSpec{Bandwidth::gbps(1), {}, {}}).ok());
  const Topology topology = std::move(builder).build().value();
  const auto groups =
      aggregation_groups(topology, ranks({0}), ranks({1}), [](NodeId) { return true; });
  ASSERT_FALSE(groups.ok());
  EXPECT_NE(groups.error().message().find("'a'"), std::string::npos);
}

}  // namespace
}  // namespace thalweg::topology
