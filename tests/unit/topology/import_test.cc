// What the files of other tools become, and the errors for bad ones.
#include <gtest/gtest.h>

#include "base/messages.h"
#include "topology/format/load.h"
#include "topology/invariants.h"

namespace thalweg::topology {
namespace {

Bandwidth rate_between(const Topology& t, std::string_view a, std::string_view b) {
  for (const ArcId arc : t.arcs_from(t.find_node(a))) {
    if (t.arc(arc).to == t.find_node(b)) return t.arc(arc).spec.rate;
  }
  return {};
}

// Two servers, each with two GPUs and an NVSwitch, and one switch between them.
constexpr std::string_view kSimai = R"(7 2 2 1 8 H100
4 5 6
0 4 3600Gbps 0.000025ms 0
1 4 3600Gbps 0.000025ms 0
2 5 3600Gbps 0.000025ms 0.0
3 5 3600Gbps 0.000025ms 0
0 6 400Gbps 0.0005ms 0
1 6 400Gbps 0.0005ms 0
2 6 400Gbps 0.0005ms 0
3 6 400Gbps 0.0005ms 0
)";

std::string simai_error(std::string_view old_text, std::string_view new_text) {
  return message_of(topology_from_simai(replaced(kSimai, old_text, new_text), "t.simai"));
}

TEST(Simai, good__servers_are_regions) {
  const Topology t = topology_from_simai(kSimai, "t.simai").value();
  EXPECT_EQ(broken_invariant(t), "");
  EXPECT_EQ(t.host_count(), 4);
  EXPECT_EQ(t.regions().size(), 3U);
  EXPECT_EQ(t.region_of(Rank(3)), t.find_region("server1"));
  EXPECT_EQ(t.node(t.find_node("nvswitch4")).region, t.find_region("server0"));
  EXPECT_EQ(t.node(t.find_node("switch6")).region, kWholeNetwork);
  EXPECT_EQ(rate_between(t, "gpu0", "nvswitch4"), Bandwidth::gbps(3600));
  EXPECT_EQ(t.links()[0].spec.delay, Duration::nanoseconds(25));
  EXPECT_EQ(rate_between(t, "gpu0-nic0", "switch6"), Bandwidth::gbps(400));
  // Within a server traffic stays on the NVSwitch.
  const Routing routing(t);
  const auto inside = routing.paths(Rank(0), Rank(1), 9);
  ASSERT_EQ(inside.size(), 1U);
  EXPECT_EQ(t.arc_name(inside[0][0]), "gpu0 → nvswitch4");
  EXPECT_EQ(routing.paths(Rank(0), Rank(3), 9).size(), 1U);
  EXPECT_EQ(routing.delay(Rank(0), Rank(3)), Duration::microseconds(1));
}

TEST(Simai, bad__named_with_the_line) {
  EXPECT_EQ(simai_error("0.0\n", "0.01\n"),
            "t.simai: line 5: error rate '0.01' is not 0: loss is set with the faults of a "
            "simulation, not in the topology");
  EXPECT_EQ(simai_error("7 2 2", "x 2 2"),
            "t.simai: line 1: the number of nodes 'x' is not a whole number from 1 to 65536");
  EXPECT_EQ(simai_error("7 2 2", "7 3 2"),
            "t.simai: line 1: 4 GPUs do not fill servers of 3: 7 nodes less 2 NVSwitches and 1 "
            "switches must be a multiple");
  EXPECT_EQ(simai_error("4 5 6", "4 4 6"),
            "t.simai: line 2: the id of an NVSwitch '4' is listed twice");
  EXPECT_EQ(simai_error("4 5 6", "4 5 9"),
            "t.simai: line 2: the id of a switch '9' is not a whole number from 0 to 6");
  EXPECT_EQ(simai_error("3 6 400", "3 7 400"),
            "t.simai: line 10: the target of a link '7' is not a whole number from 0 to 6");
  EXPECT_EQ(simai_error("3 6 400", "3 3 400"),
            "t.simai: line 10: link 3 – 3 joins a node to itself");
  EXPECT_EQ(simai_error("3 6 400Gbps", "3 6 0Gbps"),
            "t.simai: line 10: link gpu3 – gpu3-nic0: rate 0bps is out of range: above 0, at most "
            "1000Tbps");
  EXPECT_NE(simai_error("3 6 400Gbps", "3 6 400").find("line 10: the rate of a link: '400'"),
            std::string::npos);
  EXPECT_NE(simai_error("0.000025ms", "soon").find("line 3: the delay of a link: 'soon'"),
            std::string::npos);
  EXPECT_EQ(simai_error(" 8 H100", " 9 H100"),
            "t.simai: line 10: the file ends where the source of a link is expected");
  EXPECT_EQ(simai_error(" 8 H100", " 7 H100"),
            "t.simai: line 10: '3' stands after the last of the 7 links that line 1 announces");
  EXPECT_EQ(simai_error("3 6 400", "2 6 400"),
            "t.simai: host 'gpu3' cannot be reached from host 'gpu0' (hosts do not forward)");
  EXPECT_NE(message_of(topology_from_simai("", "t.simai")), "no error");
}

constexpr std::string_view kHtsim = R"(# comment
Nodes 16
Tiers 3
Podsize 8

Tier 0
Oversubscribed 2
Downlink_speed_Gbps 10
Radix_Down 4
Radix_Up 2
Downlink_Latency_ns 500
Switch_Latency_ns 100
Tier 1
Downlink_speed_Gbps 10
Radix_Down 2
Radix_Up 2
Downlink_Latency_ns 1000
Queue_Down 5000
Tier 2
Downlink_speed_Gbps 10
Radix_Down 2
Downlink_Latency_ns 2000
Switch_Latency_ns 50
)";

std::string htsim_error(std::string_view old_text, std::string_view new_text) {
  return message_of(topology_from_htsim(replaced(kHtsim, old_text, new_text), "t.topo"));
}

TEST(Htsim, three_tiers__as_htsim_wires_them) {
  const Result<Topology> result = topology_from_htsim(kHtsim, "t.topo");
  ASSERT_TRUE(result.ok()) << message_of(result);
  const Topology& t = *result;
  EXPECT_EQ(broken_invariant(t), "");
  EXPECT_EQ(t.host_count(), 16);
  EXPECT_EQ(t.nodes().size(), 16U + 4 + 4 + 4);
  EXPECT_EQ(t.region(t.region_of(Rank(12))).name, "rack3");
  EXPECT_EQ(t.region(t.region(t.region_of(Rank(12))).parent).name, "pod1");
  EXPECT_DOUBLE_EQ(t.region(t.find_region("rack0")).oversubscription, 2);
  EXPECT_DOUBLE_EQ(t.region(t.find_region("pod0")).oversubscription, 2);
  // Aggregation switch u of a pod has links to cores u and u + 2.
  EXPECT_NE(rate_between(t, "agg1", "core3"), Bandwidth());
  EXPECT_NE(rate_between(t, "agg3", "core1"), Bandwidth());
  EXPECT_EQ(rate_between(t, "agg1", "core2"), Bandwidth());
  const Routing routing(t);
  EXPECT_EQ(routing.paths(Rank(0), Rank(15), 99).size(), 4U);
  // Links of 500, 1000 and 2000 ns, up and down again; two ToRs of 100 ns, a core of 50 ns.
  EXPECT_EQ(routing.delay(Rank(0), Rank(15)), Duration::nanoseconds(7000 + 200 + 50));
}

TEST(Htsim, two_tiers__a_leaf_spine) {
  const Topology t = topology_from_htsim(
                         "nodes 8\ntiers 2\npodsize 8\n"
                         "tier 0\ndownlink_speed_gbps 10\nradix_down 4\nradix_up 4\n"
                         "downlink_latency_ns 10\nqueue_up 7000\n"
                         "tier 1\ndownlink_speed_gbps 10\nradix_down 4\nbundle 2\n"
                         "downlink_latency_ns 10\n",
                         "t.topo")
                         .value();
  EXPECT_EQ(broken_invariant(t), "");
  EXPECT_EQ(t.nodes().size(), 8U + 2 + 2);
  EXPECT_EQ(t.links().size(), 8U + 2 * 2 * 2);
  EXPECT_EQ(t.links().back().spec.buffer, Bytes(7000));
  EXPECT_EQ(Routing(t).paths(Rank(0), Rank(7), 99).size(), 8U);
}

TEST(Htsim, bad__named_with_the_line) {
  EXPECT_EQ(htsim_error("Queue_Down 5000", "Queue_Sideways 5000"),
            "t.topo: line 18: unknown key 'queue_sideways' of a tier; keys: downlink_speed_gbps, "
            "radix_up, radix_down, queue_up, queue_down, oversubscribed, bundle, "
            "switch_latency_ns, downlink_latency_ns");
  EXPECT_EQ(
      htsim_error("Podsize 8", "Padsize 8"),
      "t.topo: line 4: unknown key 'padsize' in the header; keys: nodes, tiers, podsize, then "
      "tier");
  EXPECT_EQ(htsim_error("Tiers 3", "Tiers 4"),
            "t.topo: line 3: tiers '4' is not a whole number from 2 to 3");
  EXPECT_EQ(htsim_error("Tiers 3\n", ""), "t.topo: the header has no 'tiers'");
  EXPECT_EQ(htsim_error("Tiers 3", "Tiers 2"),
            "t.topo: line 19: tier 2 is described, but the header says 2 tiers");
  EXPECT_EQ(htsim_error("Nodes 16", "Nodes 16 17"),
            "t.topo: line 2: 'Nodes' has 2 values where one is expected");
  EXPECT_EQ(htsim_error("Podsize 8", "Podsize 5"),
            "t.topo: line 4: 'podsize' 5 does not divide the 16 nodes");
  EXPECT_EQ(htsim_error("Radix_Down 4", "Radix_Down 3"),
            "t.topo: line 4: 'podsize' 8 is not a multiple of the 3 hosts a ToR ('radix_down' of "
            "tier 0)");
  EXPECT_EQ(htsim_error("Oversubscribed 2", "Oversubscribed 3"),
            "t.topo: line 7: 'oversubscribed' 3 of tier 0 does not fit 40 Gb/s down and 20 Gb/s up "
            "(radix times speed)");
  EXPECT_EQ(htsim_error("Oversubscribed 2\n", "Bundle 2\n"),
            "t.topo: line 7: 'bundle' of tier 0 must be 1: a host has one link");
  EXPECT_EQ(htsim_error("Radix_Down 2", "Radix_Down 3"),
            "t.topo: line 15: 'radix_down' 3 of tier 1 does not fit the 2 links from the ToRs of a "
            "pod");
  EXPECT_EQ(htsim_error("Tier 1\n", "Tier 1\nBundle 3\n"),
            "t.topo: line 10: 'radix_up' 2 of tier 0 is not a multiple of the bundle of tier 1, 3");
  EXPECT_EQ(htsim_error("Switch_Latency_ns 50\n", "Radix_Up 1\n"),
            "t.topo: line 23: 'radix_up' of tier 2: the highest tier has no uplinks");
  EXPECT_EQ(htsim_error("Downlink_Latency_ns 500\n", ""),
            "t.topo: line 6: tier 0 has no 'downlink_latency_ns'");
  EXPECT_EQ(htsim_error("Radix_Up 2", "Radix_Up 2\nRadix_Up 2"),
            "t.topo: line 11: 'radix_up' is given twice for tier 0; first at line 10");
  EXPECT_EQ(htsim_error("Tier 2", "Tier 1"),
            "t.topo: line 19: tier 1 is described twice; first at line 13");
  EXPECT_EQ(htsim_error("Nodes 16", "Nodes 16\nNodes 16"),
            "t.topo: line 3: 'nodes' is given twice; first at line 2");
  EXPECT_EQ(htsim_error("Switch_Latency_ns 100", "Queue_Up 6000"),
            "t.topo: line 12: 'queue_up' 6000 of tier 0 and 'queue_down' 5000 of tier 1 differ: a "
            "link has one buffer size here");
  EXPECT_NE(message_of(topology_from_htsim("", "t.topo")), "no error");
  EXPECT_NE(
      message_of(topology_from_htsim("nodes 65536\ntiers 2\npodsize 65536\n"
                                     "tier 0\ndownlink_speed_gbps 1\nradix_down 1\nradix_up 1\n"
                                     "downlink_latency_ns 1\n"
                                     "tier 1\ndownlink_speed_gbps 1\nradix_down 65536\n"
                                     "downlink_latency_ns 1\n",
                                     "t.topo"))
          .find("too many"),
      std::string::npos);
}

constexpr std::string_view kNccl = R"(<system version="1">
<cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
<pci busid="10" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
<pci busid="11" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="8">
<gpu dev="0" sm="90" rank="1"><nvlink target="s" count="2" tclass="0x068000"/></gpu>
</pci>
<pci busid="12" class="0x020700" link_speed="8 GT/s" link_width="16">
<nic><net name="n" dev="0" speed="100000" latency="2.5"/></nic>
</pci>
</pci>
</cpu>
<cpu numaid="1" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
<pci busid="21" class="0x030200" link_speed="" link_width="0">
<gpu dev="1" sm="90" rank="0"><nvlink target="s" count="2" tclass="0x068000"/></gpu>
</pci>
</cpu>
</system>
)";

std::string nccl_error(std::string_view old_text, std::string_view new_text) {
  return message_of(topology_from_nccl_xml(replaced(kNccl, old_text, new_text), "t.xml"));
}

TEST(Nccl, good__rates_and_places) {
  const Result<Topology> result = topology_from_nccl_xml(kNccl, "t.xml");
  ASSERT_TRUE(result.ok()) << message_of(result);
  const Topology& t = *result;
  EXPECT_EQ(broken_invariant(t), "");
  ASSERT_EQ(t.host_count(), 2);
  // Hosts are numbered by rank, not by place in the file.
  EXPECT_EQ(t.node(t.host(Rank(0))).name, "gpu1");
  EXPECT_EQ(t.region(t.region_of(Rank(0))).name, "numa1");
  // 16 GT/s is 12 Gb/s per lane; an unknown speed and width count as 16 lanes of 6 Gb/s.
  EXPECT_EQ(rate_between(t, "slot-gpu0", "pci-10"), Bandwidth::gbps(96));
  EXPECT_EQ(rate_between(t, "pci-10", "cpu0"), Bandwidth::gbps(192));
  EXPECT_EQ(rate_between(t, "slot-gpu1", "cpu1"), Bandwidth::gbps(96));
  EXPECT_EQ(rate_between(t, "nic-12", "pci-10"), Bandwidth::gbps(96));
  EXPECT_EQ(rate_between(t, "nic-12", "net0"), Bandwidth::gbps(100));
  // 22 GB/s between these CPUs, 20.6 GB/s per NVLink.
  EXPECT_EQ(rate_between(t, "cpu0", "cpu1"), Bandwidth::gbps(176));
  EXPECT_EQ(rate_between(t, "gpu0", "nvswitch"), Bandwidth::bits_per_second(329'600'000'000));
  const auto paths = Routing(t).paths(Rank(0), Rank(1), 9);
  ASSERT_EQ(paths.size(), 1U);
  EXPECT_EQ(t.arc_name(paths[0][0]), "gpu1 → nvswitch");
}

TEST(Nccl, nvlink_pairs__one_link_for_both_lists) {
  const std::string text = replaced(replaced(kNccl, R"(target="s" count="2" tclass="0x068000")",
                                             R"(target="21" count="4" tclass="0x030200")"),
                                    R"(target="s" count="2" tclass="0x068000")",
                                    R"(target="11" count="4" tclass="0x030200")");
  const Topology t = topology_from_nccl_xml(text, "t.xml").value();
  EXPECT_EQ(t.arcs_from(t.host(Rank(0))).size(), 2U);
  EXPECT_EQ(rate_between(t, "gpu0", "gpu1"), Bandwidth::bits_per_second(659'200'000'000));
  EXPECT_EQ(message_of(topology_from_nccl_xml(
                replaced(text, R"(target="11" count="4")", R"(target="11" count="5")"), "t.xml")),
            "t.xml: line 5: 'count' of <nvlink>: 4 links between gpu0 and gpu1, but 5 were listed "
            "before");
}

TEST(Nccl, class_only__devices_without_children) {
  const Topology t = topology_from_nccl_xml(R"(<system><cpu numaid="-1">
      <pci busid="1" class="0x030200"/><pci busid="2" class="0x030200"/>
      <pci busid="3" class="0x020000"/></cpu></system>)",
                                            "t.xml")
                         .value();
  EXPECT_EQ(t.host_count(), 2);
  EXPECT_TRUE(t.find_node("gpu-2").valid());
  EXPECT_TRUE(t.find_node("nic-3").valid());
}

TEST(Nccl, bad__named_with_the_line) {
  EXPECT_EQ(nccl_error("</gpu>", "</cpu>"), "t.xml: line 5: not XML: Start-end tags mismatch");
  EXPECT_EQ(nccl_error("<nvlink target", "<xlink target"),
            "t.xml: line 5: unknown element <xlink> in <gpu>; elements: nvlink, c2c");
  EXPECT_EQ(nccl_error("<gpu dev=\"0\"", "<gpu"), "t.xml: line 5: <gpu> has no 'dev'");
  EXPECT_EQ(nccl_error("dev=\"0\" sm=\"90\"", "dev=\"0\""), "t.xml: line 5: <gpu> has no 'sm'");
  EXPECT_EQ(nccl_error("dev=\"0\" sm=\"90\"", "dev=\"x\" sm=\"90\""),
            "t.xml: line 5: 'dev' of <gpu>: 'x' is not a whole number from 0 to 65536");
  EXPECT_EQ(nccl_error("dev=\"1\"", "dev=\"0\""),
            "t.xml: line 5: node name 'gpu0' is used twice: hosts and switches need unique names");
  EXPECT_EQ(nccl_error("rank=\"0\"", "rank=\"1\""),
            "t.xml: line 14: 'rank' of <gpu>: gpu1 and gpu0 both have rank 1");
  EXPECT_EQ(nccl_error("count=\"2\"", "count=\"0\""),
            "t.xml: line 5: 'count' of <nvlink>: '0' is not a whole number from 1 to 1024");
  EXPECT_EQ(nccl_error("tclass=\"0x068000\"", "tclass=\"0x07\""),
            "t.xml: line 5: 'tclass' of <nvlink>: '0x07' is unknown: 0x03… (GPU), 0x068000 "
            "(NVSwitch), 0x068001 (CPU)");
  EXPECT_EQ(nccl_error("tclass=\"0x068000\"", "tclass=\"0x030200\""),
            "t.xml: line 5: 'target' of <nvlink>: no GPU has the busid 's'");
  EXPECT_EQ(nccl_error("numaid=\"1\"", "numaid=\"0\""),
            "t.xml: line 12: region name 'numa0' is used twice: names are unique");
  EXPECT_EQ(nccl_error("<cpu numaid=\"1\"", "<cpu host_hash=\"7\" numaid=\"1\""),
            "t.xml: line 12: <cpu> has host_hash '7', the first has '': only dumps of one server "
            "can be read");
  EXPECT_EQ(nccl_error("latency=\"2.5\"", "latency=\"-1\""),
            "t.xml: line 8: 'latency' of <net>: '-1' is not a number from 0 to 1000000 (us)");
  EXPECT_EQ(nccl_error("busid=\"11\"", ""), "t.xml: line 4: <pci> has no 'busid'");
  EXPECT_EQ(message_of(topology_from_nccl_xml("<graphs/>", "t.xml")),
            "t.xml: line 1: no <system> element: not a topology dump of NCCL");
  EXPECT_EQ(message_of(topology_from_nccl_xml("<system/>", "t.xml")),
            "t.xml: line 1: <system> holds no GPU: at least one is needed");
  EXPECT_NE(message_of(topology_from_nccl_xml("", "t.xml")), "no error");
}

TEST(Nccl, hostile__deep_nesting_is_an_error) {
  std::string text = R"(<system><cpu numaid="0">)";
  for (int i = 0; i < 100'000; ++i) text += fmt::format(R"(<pci busid="{}">)", i);
  EXPECT_NE(message_of(topology_from_nccl_xml(text, "t.xml")), "no error");
  for (int i = 0; i < 100'000; ++i) text += "</pci>";
  EXPECT_EQ(message_of(topology_from_nccl_xml(text + "</cpu></system>", "t.xml")),
            "t.xml: line 1: <pci> is nested 33 deep: at most 32");
}

}  // namespace
}  // namespace thalweg::topology
