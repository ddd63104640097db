#include <gtest/gtest.h>

#include "base/messages.h"
#include "topology/format/load.h"
#include "topology/invariants.h"

namespace thalweg::topology {
namespace {

std::string error_of(std::string_view text) { return message_of(topology_from_shorthand(text)); }

std::size_t switch_count(const Topology& t) {
  return t.nodes().size() - static_cast<std::size_t>(t.host_count());
}

TEST(Shorthand, single_switch__counts_and_spec) {
  const Topology t =
      topology_from_shorthand("single-switch:hosts=3,host=25G,delay=2us,buffer=1MB").value();
  EXPECT_EQ(t.host_count(), 3);
  EXPECT_EQ(switch_count(t), 1U);
  EXPECT_EQ(t.regions().size(), 1U);
  for (const Link& link : t.links()) {
    EXPECT_EQ(link.spec,
              (LinkSpec{Bandwidth::gbps(25), Duration::microseconds(2), Bytes(1'000'000)}));
  }
  EXPECT_EQ(t.node(t.host(Rank(2))).name, "host2");
}

TEST(Shorthand, leaf_spine__the_two_rack_network_of_the_issue) {
  const Topology t =
      topology_from_shorthand("leaf-spine:racks=2,hosts=4,spines=1,host=10G,uplink=10G").value();
  EXPECT_EQ(t.name(), "leaf-spine:racks=2,hosts=4,spines=1,host=10G,uplink=10G");
  EXPECT_EQ(t.host_count(), 8);
  EXPECT_EQ(switch_count(t), 3U);
  EXPECT_EQ(t.links().size(), 10U);
  EXPECT_EQ(t.node(t.host(Rank(5))).name, "rack1-host1");
  EXPECT_EQ(t.region(t.region_of(Rank(5))).name, "rack1");
  EXPECT_EQ(t.node(t.find_node("leaf1")).region, t.find_region("rack1"));
  EXPECT_EQ(t.node(t.find_node("spine0")).region, kWholeNetwork);
  EXPECT_DOUBLE_EQ(t.region(t.find_region("rack0")).oversubscription, 4);
  EXPECT_EQ(t.links()[0].spec.delay, Duration::microseconds(1));
  EXPECT_EQ(t.links()[0].spec.buffer, Bytes(524'288));
}

TEST(Shorthand, leaf_spine__uplink_is_the_rate_of_each_link) {
  const Topology t =
      topology_from_shorthand("leaf-spine:racks=2,hosts=8,spines=4,host=10G,uplink=40G").value();
  EXPECT_DOUBLE_EQ(t.regions()[1].oversubscription, 0.5);
}

TEST(Shorthand, fat_tree__k4) {
  const Topology t = topology_from_shorthand("fat-tree:k=4,host=10G").value();
  EXPECT_EQ(t.host_count(), 16);
  EXPECT_EQ(switch_count(t), 20U);
  EXPECT_EQ(t.links().size(), 48U);
  EXPECT_EQ(t.regions().size(), 1U + 4 + 8);
  const RegionId rack = t.find_region("pod3-rack1");
  ASSERT_TRUE(rack.valid());
  EXPECT_EQ(t.region(rack).hosts, (std::vector{Rank(14), Rank(15)}));
  EXPECT_EQ(t.region(t.region(rack).parent).name, "pod3");
  EXPECT_DOUBLE_EQ(t.region(rack).oversubscription, 1);
  EXPECT_DOUBLE_EQ(t.region(t.find_region("pod0")).oversubscription, 1);
  // Every core has one link to every pod.
  EXPECT_EQ(t.arcs_from(t.find_node("core2")).size(), 4U);
}

TEST(Shorthand, fat_tree__rates_by_tier) {
  const Topology t = topology_from_shorthand("fat-tree:k=4,host=10G,core=5G").value();
  EXPECT_DOUBLE_EQ(t.region(t.find_region("pod0-rack0")).oversubscription, 1);
  EXPECT_DOUBLE_EQ(t.region(t.find_region("pod0")).oversubscription, 2);
}

TEST(Shorthand, three_tier__defaults) {
  const Topology t = topology_from_shorthand("three-tier").value();
  EXPECT_EQ(t.host_count(), 16);
  EXPECT_EQ(switch_count(t), 4U + 4 + 2);
  EXPECT_EQ(t.links().size(), 16U + 8 + 8);
  EXPECT_DOUBLE_EQ(t.region(t.find_region("pod1-rack0")).oversubscription, 40.0 / 80);
  EXPECT_DOUBLE_EQ(t.region(t.find_region("pod1")).oversubscription, 80.0 / 400);
}

TEST(Shorthand, all_kinds__invariants) {
  for (const std::string_view text :
       {"single-switch", "leaf-spine", "fat-tree", "three-tier", "fat-tree:k=2",
        "leaf-spine:racks=1,hosts=1", "leaf-spine:", "three-tier:pods=3,racks=1,hosts=2,cores=5"}) {
    SCOPED_TRACE(text);
    EXPECT_EQ(broken_invariant(topology_from_shorthand(text).value()), "");
  }
}

TEST(Shorthand, large__a_thousand_hosts) {
  const Topology t =
      topology_from_shorthand("leaf-spine:racks=32,hosts=32,spines=8,host=10G,uplink=10G").value();
  EXPECT_EQ(t.host_count(), 1024);
  EXPECT_DOUBLE_EQ(t.regions()[1].oversubscription, 4);
}

TEST(Shorthand, unknown_kind__lists_the_kinds) {
  EXPECT_EQ(error_of("ring:hosts=3"),
            "unknown kind of topology 'ring'; kinds: single-switch, leaf-spine, fat-tree, "
            "three-tier");
}

TEST(Shorthand, bad_keys__named) {
  EXPECT_EQ(error_of("single-switch:rack=3"),
            "topology 'single-switch:rack=3': unknown key 'rack'; keys of single-switch: hosts, "
            "host, delay, buffer");
  EXPECT_EQ(error_of("single-switch:hosts=3,hosts=4"),
            "topology 'single-switch:hosts=3,hosts=4': key 'hosts' is given twice: '3' and '4'");
  for (const std::string_view pair : {"hosts", "hosts=", "=3", ",", "hosts=3,,host=1G"}) {
    const std::string text = fmt::format("single-switch:{}", pair);
    EXPECT_NE(error_of(text), "no error") << text;
  }
}

TEST(Shorthand, bad_values__named_with_what_is_allowed) {
  EXPECT_EQ(error_of("single-switch:hosts=0"),
            "topology 'single-switch:hosts=0': key 'hosts': count '0' is not a whole number from 1 "
            "to 65536");
  for (const std::string_view value : {"-1", "1.5", "x", "1e3", "99999999999999999999", "65537"}) {
    const std::string error = error_of(fmt::format("single-switch:hosts={}", value));
    EXPECT_NE(error.find(fmt::format("key 'hosts': count '{}'", value)), std::string::npos)
        << error;
  }
  EXPECT_NE(error_of("single-switch:host=10X").find("key 'host': '10X' is not a bandwidth"),
            std::string::npos);
  EXPECT_NE(error_of("single-switch:host=0G").find("key 'host': rate '0G' is out of range"),
            std::string::npos);
  EXPECT_NE(error_of("single-switch:delay=3h").find("key 'delay': '3h' is not a time"),
            std::string::npos);
  EXPECT_NE(error_of("single-switch:delay=2s").find("key 'delay'"), std::string::npos);
  EXPECT_NE(error_of("single-switch:buffer=1").find("key 'buffer'"), std::string::npos);
  EXPECT_NE(error_of("single-switch:buffer=2TiB").find("key 'buffer'"), std::string::npos);
  EXPECT_NE(error_of("leaf-spine:uplink==host").find("key 'uplink': '=host'"), std::string::npos);
  EXPECT_NE(error_of("fat-tree:k=3").find("key 'k': 3 is odd"), std::string::npos);
}

TEST(Shorthand, too_large__refused_at_once) {
  EXPECT_EQ(error_of("leaf-spine:racks=65536,hosts=65536,spines=65536"),
            "topology 'leaf-spine:racks=65536,hosts=65536,spines=65536': 4294967296 hosts and "
            "131072 switches are too many: at most 65536 nodes");
  EXPECT_NE(error_of("leaf-spine:racks=30000,hosts=1,spines=5000").find("links are too many"),
            std::string::npos);
  EXPECT_NE(error_of("fat-tree:k=65536").find("too many"), std::string::npos);
  EXPECT_NE(error_of("three-tier:pods=65536,racks=65536,hosts=65536").find("too many"),
            std::string::npos);
}

TEST(Shorthand, is_shorthand__by_the_name_of_a_kind) {
  EXPECT_TRUE(is_topology_shorthand("fat-tree:k=4"));
  EXPECT_TRUE(is_topology_shorthand("fat-tree"));
  EXPECT_TRUE(is_topology_shorthand("leaf-spine:nonsense"));
  EXPECT_FALSE(is_topology_shorthand("fat-tree.yaml"));
  EXPECT_FALSE(is_topology_shorthand(""));
  EXPECT_FALSE(is_topology_shorthand("cluster:k=4"));
}

}  // namespace
}  // namespace thalweg::topology
