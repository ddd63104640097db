#include "topology/routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "topology/format/load.h"
#include "topology/invariants.h"
#include "topology/random_topology.h"

namespace thalweg::topology {
namespace {

Topology shorthand(std::string_view text) { return topology_from_shorthand(text).value(); }

// Bellman–Ford over nodes, with hosts that do not forward: the obvious distances to compare with.
std::vector<int> distances_to(const Topology& t, Rank to) {
  constexpr int kFar = std::numeric_limits<int>::max() / 2;
  std::vector<int> distance(t.nodes().size(), kFar);
  distance[t.host(to).index()] = 0;
  for (std::size_t round = 0; round < t.nodes().size(); ++round) {
    for (std::size_t a = 0; a < t.arc_count(); ++a) {
      const Arc arc = t.arc(ArcId(static_cast<std::int32_t>(a)));
      const bool forwards = arc.to == t.host(to) || !t.rank_of(arc.to).valid();
      if (!forwards) continue;
      int& from = distance[arc.from.index()];
      from = std::min(from, distance[arc.to.index()] + 1);
    }
  }
  for (int& d : distance) d = d == kFar ? -1 : d;
  return distance;
}

TEST(Routing, paths__fat_tree_k4) {
  const Topology t = shorthand("fat-tree:k=4");
  const Routing routing(t);
  // Hosts 0 and 1 share a rack, 0 and 2 a pod, and 0 and 15 nothing.
  EXPECT_EQ(routing.paths(Rank(0), Rank(1), 100).size(), 1U);
  EXPECT_EQ(routing.paths(Rank(0), Rank(2), 100).size(), 2U);
  EXPECT_EQ(routing.paths(Rank(0), Rank(15), 100).size(), 4U);
  EXPECT_EQ(routing.paths(Rank(0), Rank(15), 3).size(), 3U);
  EXPECT_TRUE(routing.paths(Rank(0), Rank(15), 0).empty());
  EXPECT_TRUE(routing.paths(Rank(4), Rank(4), 100).empty());
  EXPECT_EQ(routing.distance(t.host(Rank(0)), Rank(1)), 2);
  EXPECT_EQ(routing.distance(t.host(Rank(0)), Rank(2)), 4);
  EXPECT_EQ(routing.distance(t.host(Rank(0)), Rank(15)), 6);
  EXPECT_EQ(routing.distance(t.find_node("core3"), Rank(0)), 3);
  EXPECT_EQ(routing.distance(t.host(Rank(7)), Rank(7)), 0);
}

TEST(Routing, shares__even_over_spines) {
  const Topology t = shorthand("leaf-spine:racks=2,hosts=2,spines=4");
  const Routing routing(t);
  const std::vector<ArcShare> shares = routing.shares(Rank(0), Rank(3));
  ASSERT_EQ(shares.size(), 10U);
  EXPECT_EQ(t.arc_name(shares.front().arc), "rack0-host0 → leaf0");
  EXPECT_EQ(t.arc_name(shares.back().arc), "leaf1 → rack1-host1");
  for (std::size_t i = 1; i + 1 < shares.size(); ++i) EXPECT_EQ(shares[i].fraction, 0.25);
  EXPECT_TRUE(routing.shares(Rank(2), Rank(2)).empty());
}

TEST(Routing, next_hops__in_link_order) {
  const Topology t = shorthand("leaf-spine:racks=2,hosts=1,spines=2");
  const Routing routing(t);
  const NodeId leaf = t.find_node("leaf0");
  const std::vector<ArcId> up = routing.next_hops(leaf, Rank(1));
  ASSERT_EQ(up.size(), 2U);
  EXPECT_EQ(t.arc_name(up[0]), "leaf0 → spine0");
  EXPECT_EQ(t.arc_name(up[1]), "leaf0 → spine1");
  const std::vector<ArcId> down = routing.next_hops(leaf, Rank(0));
  ASSERT_EQ(down.size(), 1U);
  EXPECT_EQ(t.arc_name(down[0]), "leaf0 → rack0-host0");
  EXPECT_TRUE(routing.next_hops(t.host(Rank(0)), Rank(0)).empty());
}

TEST(Routing, delay__of_the_slowest_shortest_path) {
  TopologyBuilder builder("");
  const NodeId a = builder.add_host("a", kWholeNetwork).value();
  const NodeId b = builder.add_host("b", kWholeNetwork).value();
  const NodeId left = builder.add_switch("left", kWholeNetwork).value();
  const NodeId right = builder.add_switch("right", kWholeNetwork).value();
  const auto join = [&](NodeId x, NodeId y, std::int64_t us) {
    (void)builder.add_link(x, y, {Bandwidth::gbps(1), Duration::microseconds(us), {}}).value();
  };
  join(a, left, 1);
  join(left, right, 5);
  join(left, right, 7);
  join(right, b, 2);
  const Topology t = std::move(builder).build().value();
  const Routing routing(t);
  EXPECT_EQ(routing.delay(Rank(0), Rank(1)), Duration::microseconds(10));
  EXPECT_EQ(routing.delay(Rank(1), Rank(1)), Duration());
  EXPECT_EQ(routing.paths(Rank(0), Rank(1), 9).size(), 2U);
}

TEST(Routing, direct_link__preferred_and_not_shared_by_others) {
  TopologyBuilder builder("");
  const NodeId a = builder.add_host("a", kWholeNetwork).value();
  const NodeId b = builder.add_host("b", kWholeNetwork).value();
  const NodeId c = builder.add_host("c", kWholeNetwork).value();
  const NodeId s = builder.add_switch("s", kWholeNetwork).value();
  const LinkSpec spec{Bandwidth::gbps(1), {}, {}};
  for (const NodeId host : {a, b, c}) (void)builder.add_link(host, s, spec).value();
  (void)builder.add_link(a, b, spec).value();
  const Topology t = std::move(builder).build().value();
  const Routing routing(t);
  EXPECT_EQ(routing.distance(a, Rank(1)), 1);
  EXPECT_EQ(routing.distance(a, Rank(2)), 2);
  EXPECT_EQ(routing.paths(Rank(0), Rank(2), 9).size(), 1U);
}

TEST(Routing, unjoined_switch__has_no_distance) {
  TopologyBuilder builder("");
  const NodeId a = builder.add_host("a", kWholeNetwork).value();
  const NodeId s = builder.add_switch("s", kWholeNetwork).value();
  const NodeId lonely = builder.add_switch("lonely", kWholeNetwork).value();
  (void)builder.add_link(a, s, {Bandwidth::gbps(1), {}, {}}).value();
  const Topology t = std::move(builder).build().value();
  const Routing routing(t);
  EXPECT_EQ(routing.distance(lonely, Rank(0)), -1);
  EXPECT_TRUE(routing.next_hops(lonely, Rank(0)).empty());
  EXPECT_EQ(routing.distance(s, Rank(0)), 1);
}

void expect_sound(const Topology& t) {
  const Routing routing(t);
  for (std::int32_t to = 0; to < t.host_count(); ++to) {
    const std::vector<int> expected = distances_to(t, Rank(to));
    for (std::size_t n = 0; n < t.nodes().size(); ++n) {
      ASSERT_EQ(routing.distance(NodeId(static_cast<std::int32_t>(n)), Rank(to)), expected[n])
          << t.nodes()[n].name << " to " << to;
    }
    for (std::int32_t from = 0; from < t.host_count(); ++from) {
      ASSERT_EQ(broken_conservation(t, routing, Rank(from), Rank(to)), "");
      Duration slowest;
      for (const std::vector<ArcId>& path : routing.paths(Rank(from), Rank(to), 10'000)) {
        ASSERT_EQ(static_cast<int>(path.size()), routing.distance(t.host(Rank(from)), Rank(to)));
        NodeId at = t.host(Rank(from));
        Duration delay;
        for (const ArcId arc : path) {
          ASSERT_EQ(t.arc(arc).from, at);
          at = t.arc(arc).to;
          delay += t.arc(arc).spec.delay;
        }
        ASSERT_EQ(at, t.host(Rank(to)));
        slowest = std::max(slowest, delay);
      }
      ASSERT_EQ(routing.delay(Rank(from), Rank(to)), slowest);
    }
  }
}

TEST(Routing, random__agrees_with_the_obvious) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ASSERT_NO_FATAL_FAILURE(expect_sound(random_topology(seed)));
  }
}

TEST(Routing, regular_networks__agree_with_the_obvious) {
  for (const std::string_view text :
       {"single-switch:hosts=1", "single-switch:hosts=5", "leaf-spine:racks=3,hosts=2,spines=2",
        "fat-tree:k=2", "fat-tree:k=4", "three-tier:pods=2,racks=2,hosts=2,aggs=2,cores=3"}) {
    SCOPED_TRACE(text);
    ASSERT_NO_FATAL_FAILURE(expect_sound(shorthand(text)));
  }
}

// A switch spreads over 2, each of them over 2, and so on: fractions halve far below the smallest
// double, and every arc must still come once.
TEST(Routing, shares__fractions_that_underflow) {
  TopologyBuilder builder("");
  const LinkSpec spec{Bandwidth::gbps(1), {}, {}};
  const NodeId a = builder.add_host("a", kWholeNetwork).value();
  const NodeId b = builder.add_host("b", kWholeNetwork).value();
  constexpr int kLevels = 1200;
  // Level i leads to level i+1, or leaves for a chain of the same length.
  std::vector<NodeId> left;
  std::vector<NodeId> right;
  for (int i = 0; i < kLevels; ++i) {
    left.push_back(builder.add_switch(fmt::format("l{}", i), kWholeNetwork).value());
    right.push_back(builder.add_switch(fmt::format("r{}", i), kWholeNetwork).value());
    if (i == 0) continue;
    const auto last = static_cast<std::size_t>(i - 1);
    (void)builder.add_link(left[last], left.back(), spec).value();
    (void)builder.add_link(left[last], right.back(), spec).value();
    (void)builder.add_link(right[last], right.back(), spec).value();
  }
  (void)builder.add_link(a, left.front(), spec).value();
  (void)builder.add_link(left.back(), b, spec).value();
  (void)builder.add_link(right.back(), b, spec).value();
  const Topology t = std::move(builder).build().value();
  EXPECT_EQ(broken_conservation(t, Routing(t), Rank(0), Rank(1)), "");
}

}  // namespace
}  // namespace thalweg::topology
