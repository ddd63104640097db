#include "topology/topology.h"

#include <gtest/gtest.h>

#include "base/messages.h"
#include "base/prng.h"
#include "topology/format/load.h"
#include "topology/invariants.h"
#include "topology/random_topology.h"

namespace thalweg::topology {
namespace {

constexpr LinkSpec kLink{Bandwidth::gbps(10), Duration::microseconds(1), Bytes(1000)};

// Two hosts, each on a switch of its own.
struct TwoHosts {
  TopologyBuilder builder{"test"};
  NodeId a = builder.add_host("a", kWholeNetwork).value();
  NodeId b = builder.add_host("b", kWholeNetwork).value();
  NodeId s = builder.add_switch("s", kWholeNetwork).value();
  NodeId t = builder.add_switch("t", kWholeNetwork).value();
};

TEST(TopologyBuilder, build__one_host_alone_is_a_network) {
  TopologyBuilder builder("");
  (void)builder.add_host("only", kWholeNetwork).value();
  const Result<Topology> topology = std::move(builder).build();
  ASSERT_TRUE(topology.ok()) << message_of(topology);
  EXPECT_EQ(topology->host_count(), 1);
}

TEST(TopologyBuilder, build__no_host) {
  TopologyBuilder builder("");
  (void)builder.add_switch("s", kWholeNetwork).value();
  EXPECT_EQ(message_of(std::move(builder).build()),
            "the topology has no host: at least one is needed");
}

TEST(TopologyBuilder, build__host_without_link_is_named) {
  TwoHosts net;
  (void)net.builder.add_link(net.a, net.s, kLink).value();
  EXPECT_EQ(message_of(std::move(net.builder).build()), "host 'b' has no link");
}

TEST(TopologyBuilder, build__unreachable_host_is_named) {
  TwoHosts net;
  (void)net.builder.add_link(net.a, net.s, kLink).value();
  (void)net.builder.add_link(net.b, net.t, kLink).value();
  EXPECT_EQ(message_of(std::move(net.builder).build()),
            "host 'b' cannot be reached from host 'a' (hosts do not forward)");
}

// a is joined to both others, which are joined to each other only through a.
TEST(TopologyBuilder, build__hosts_do_not_forward) {
  TwoHosts net;
  const NodeId c = net.builder.add_host("c", kWholeNetwork).value();
  (void)net.builder.add_link(net.a, net.s, kLink).value();
  (void)net.builder.add_link(net.a, net.t, kLink).value();
  (void)net.builder.add_link(net.b, net.s, kLink).value();
  (void)net.builder.add_link(c, net.t, kLink).value();
  EXPECT_EQ(message_of(std::move(net.builder).build()),
            "host 'c' cannot be reached from host 'b' (hosts do not forward)");
}

// No switch is linked to all three hosts, yet every two have a path.
TEST(TopologyBuilder, build__pairwise_paths_are_enough) {
  TwoHosts net;
  const NodeId c = net.builder.add_host("c", kWholeNetwork).value();
  (void)net.builder.add_link(net.a, net.s, kLink).value();
  (void)net.builder.add_link(net.b, net.s, kLink).value();
  (void)net.builder.add_link(net.b, net.t, kLink).value();
  (void)net.builder.add_link(c, net.t, kLink).value();
  (void)net.builder.add_link(c, net.a, kLink).value();
  const Result<Topology> topology = std::move(net.builder).build();
  EXPECT_TRUE(topology.ok()) << message_of(topology);
}

TEST(TopologyBuilder, add_host__name_twice) {
  TwoHosts net;
  EXPECT_EQ(message_of(net.builder.add_switch("a", kWholeNetwork)),
            "node name 'a' is used twice: hosts and switches need unique names");
}

TEST(TopologyBuilder, add_host__bad_names) {
  TopologyBuilder builder("");
  for (const std::string& name :
       {std::string(), std::string("a\nb"), std::string("\xff"), std::string("\xed\xa0\x80"),
        std::string("\xc2\x85"), std::string("a\0b", 3), std::string(kMaxNameLength + 1, 'x')}) {
    EXPECT_FALSE(builder.add_host(name, kWholeNetwork).ok()) << name;
  }
  EXPECT_TRUE(builder.add_host(std::string(kMaxNameLength, 'x'), kWholeNetwork).ok());
  EXPECT_TRUE(builder.add_host("Wirt 0 – müde", kWholeNetwork).ok());
}

TEST(TopologyBuilder, add_region__name_twice_and_too_deep) {
  TopologyBuilder builder("");
  RegionId inner = kWholeNetwork;
  for (int depth = 1; depth <= kMaxRegionDepth; ++depth) {
    inner = builder.add_region(fmt::format("r{}", depth), inner).value();
  }
  EXPECT_EQ(message_of(builder.add_region("r1", kWholeNetwork)),
            "region name 'r1' is used twice: names are unique");
  EXPECT_EQ(message_of(builder.add_region("deep", inner)),
            "region 'deep' is nested 17 deep: at most 16");
}

TEST(TopologyBuilder, add_link__out_of_range) {
  TwoHosts net;
  const auto with = [&](Bandwidth rate, Duration delay, Bytes buffer) {
    return message_of(net.builder.add_link(net.a, net.s, {rate, delay, buffer}));
  };
  const Bandwidth good = Bandwidth::gbps(1);
  EXPECT_EQ(with(Bandwidth(), {}, {}),
            "link a – s: rate 0bps is out of range: above 0, at most 1000Tbps");
  EXPECT_NE(with(Bandwidth::bits_per_second(-1), {}, {}), "no error");
  EXPECT_NE(with(Bandwidth::gbps(1'000'001), {}, {}), "no error");
  EXPECT_EQ(with(good, Duration::milliseconds(1001), {}),
            "link a – s: delay 1001ms is out of range: 0 to 1s");
  EXPECT_EQ(with(good, {}, Bytes(-1)), "link a – s: buffer -1B is out of range: 0 to 1TiB");
  EXPECT_EQ(with(good, {}, {}), "no error");
  EXPECT_EQ(message_of(net.builder.add_link(net.a, net.a, kLink)),
            "link a – a: joins a node to itself: name two different nodes");
}

TEST(Topology, accessors__a_small_network) {
  TopologyBuilder builder("small");
  const RegionId pod = builder.add_region("pod", kWholeNetwork).value();
  const RegionId rack = builder.add_region("rack", pod).value();
  const NodeId leaf = builder.add_switch("leaf", rack).value();
  const NodeId a = builder.add_host("a", rack).value();
  const NodeId b = builder.add_host("b", pod).value();
  const NodeId c = builder.add_host("c", kWholeNetwork).value();
  (void)builder.add_link(a, leaf, kLink).value();
  (void)builder.add_link(leaf, b, kLink).value();
  (void)builder.add_link(leaf, c, {Bandwidth::gbps(40), {}, {}}).value();
  const Topology t = std::move(builder).build().value();

  EXPECT_EQ(t.host_count(), 3);
  EXPECT_EQ(t.host(Rank(1)), b);
  EXPECT_EQ(t.rank_of(c), Rank(2));
  EXPECT_FALSE(t.rank_of(leaf).valid());
  EXPECT_EQ(t.find_node("leaf"), leaf);
  EXPECT_FALSE(t.find_node("none").valid());
  EXPECT_EQ(t.find_region("rack"), rack);
  EXPECT_FALSE(t.find_region("none").valid());
  EXPECT_TRUE(t.contains(pod, rack));
  EXPECT_TRUE(t.contains(kWholeNetwork, pod));
  EXPECT_FALSE(t.contains(rack, pod));
  EXPECT_EQ(t.arc_name(ArcId(2)), "leaf → b");
  EXPECT_EQ(t.arc_name(ArcId(3)), "b → leaf");
  EXPECT_EQ(t.arc(ArcId(5)).from, c);
  EXPECT_EQ(t.arcs_from(leaf).size(), 3U);
  EXPECT_EQ(t.region(pod).hosts, (std::vector{Rank(0), Rank(1)}));
  EXPECT_EQ(t.region(pod).children, std::vector{rack});
  // The links to b and c leave the rack; one host of 10 Gb/s is in it.
  EXPECT_DOUBLE_EQ(t.region(rack).oversubscription, 10.0 / 50);
  EXPECT_DOUBLE_EQ(t.region(pod).oversubscription, 20.0 / 40);
  EXPECT_EQ(t.region(kWholeNetwork).oversubscription, 0);
}

TEST(Topology, equality__every_part_counts) {
  const auto build = [](const std::string& host, std::int64_t rate, bool in_region) {
    TopologyBuilder builder("t");
    const RegionId region = builder.add_region("r", kWholeNetwork).value();
    const NodeId a = builder.add_host(host, in_region ? region : kWholeNetwork).value();
    const NodeId b = builder.add_host("b", kWholeNetwork).value();
    (void)builder.add_link(a, b, {Bandwidth::gbps(rate), {}, {}}).value();
    return std::move(builder).build().value();
  };
  EXPECT_EQ(build("a", 1, true), build("a", 1, true));
  EXPECT_NE(build("a", 1, true), build("x", 1, true));
  EXPECT_NE(build("a", 1, true), build("a", 2, true));
  EXPECT_NE(build("a", 1, true), build("a", 1, false));
}

TEST(Topology, restricted_to__only_these_hosts_in_this_order) {
  const Topology whole =
      topology_from_shorthand("leaf-spine:racks=3,hosts=4,spines=2,host=10G,uplink=20G").value();
  const Topology part = restricted_to(whole, std::vector{Rank(5), Rank(0), Rank(1)});
  ASSERT_EQ(part.host_count(), 3);
  EXPECT_EQ(part.node(part.host(Rank(0))).name, "rack1-host1");
  EXPECT_EQ(part.node(part.host(Rank(2))).name, "rack0-host1");
  EXPECT_EQ(part.regions().size(), whole.regions().size());
  EXPECT_EQ(part.links().size(), whole.links().size() - 9);
  // Two hosts of 10 Gb/s behind two uplinks of 20.
  EXPECT_DOUBLE_EQ(part.region(part.region_of(Rank(1))).oversubscription, 0.5);
  EXPECT_EQ(broken_invariant(part), "");
}

TEST(Topology, restricted_to__random_networks) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Topology whole = random_topology(seed);
    Prng prng(seed);
    std::vector<Rank> hosts;
    for (Rank r(0); r.value() < whole.host_count(); ++r) hosts.push_back(r);
    prng.shuffle(std::span(hosts));
    hosts.resize(1 + prng.below(hosts.size()));
    const Topology part = restricted_to(whole, hosts);
    ASSERT_EQ(static_cast<std::size_t>(part.host_count()), hosts.size());
    for (std::size_t i = 0; i < hosts.size(); ++i) {
      ASSERT_EQ(part.node(part.host(Rank(static_cast<std::int32_t>(i)))).name,
                whole.node(whole.host(hosts[i])).name);
    }
  }
}

TEST(Topology, invariants__random_networks) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ASSERT_EQ(broken_invariant(random_topology(seed)), "");
  }
}

}  // namespace
}  // namespace thalweg::topology
