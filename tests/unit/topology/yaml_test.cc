#include <gtest/gtest.h>

#include "base/messages.h"
#include "topology/format/load.h"
#include "topology/format/text.h"
#include "topology/invariants.h"
#include "topology/random_topology.h"

namespace thalweg::topology {
namespace {

constexpr std::string_view kGood = R"(name: good
defaults: {rate: 10G, delay: 2us, buffer: 1MB}
regions:
  - name: rack
    parent: pod
  - name: pod
hosts:
  - {name: a, region: rack}
  - {name: b}
switches:
  - {name: s, region: rack}
links:
  - between: [a, s]
    rate: 2.5Gbps
  - {between: [s, b], delay: 0, buffer: 0}
)";

std::string yaml_error_of(std::string_view text) {
  return message_of(topology_from_yaml(text, "net.yaml"));
}

// kGood with one piece of text replaced.
std::string error_with(std::string_view old_text, std::string_view new_text) {
  return yaml_error_of(replaced(kGood, old_text, new_text));
}

TEST(Yaml, good__every_field) {
  const Result<Topology> result = topology_from_yaml(kGood, "net.yaml");
  ASSERT_TRUE(result.ok()) << result.error().message();
  const Topology& t = *result;
  EXPECT_EQ(broken_invariant(t), "");
  EXPECT_EQ(t.name(), "good");
  EXPECT_EQ(t.host_count(), 2);
  EXPECT_EQ(t.region(t.find_region("rack")).parent, t.find_region("pod"));
  EXPECT_EQ(t.region_of(Rank(0)), t.find_region("rack"));
  EXPECT_EQ(t.region_of(Rank(1)), kWholeNetwork);
  ASSERT_EQ(t.links().size(), 2U);
  EXPECT_EQ(t.links()[0].spec, (LinkSpec{Bandwidth::bits_per_second(2'500'000'000),
                                         Duration::microseconds(2), Bytes(1'000'000)}));
  EXPECT_EQ(t.links()[1].spec, (LinkSpec{Bandwidth::gbps(10), Duration(), Bytes()}));
}

TEST(Yaml, defaults__name_of_the_file_and_one_microsecond) {
  const Topology t = topology_from_yaml(
                         "hosts: [{name: a}, {name: b}]\n"
                         "links: [{between: [a, b], rate: 1G}]\n",
                         "dir/two.yaml")
                         .value();
  EXPECT_EQ(t.name(), "two.yaml");
  EXPECT_EQ(t.links()[0].spec, (LinkSpec{Bandwidth::gbps(1), Duration::microseconds(1), Bytes(0)}));
}

TEST(Yaml, parallel_links__are_kept) {
  const Topology t = topology_from_yaml(
                         "hosts: [{name: a}, {name: b}]\n"
                         "links: [{between: [a, b], rate: 1G}, "
                         "{between: [b, a], rate: 1G}]\n",
                         "f.yaml")
                         .value();
  EXPECT_EQ(t.links().size(), 2U);
}

TEST(Yaml, unknown_key__lists_the_keys) {
  EXPECT_EQ(error_with("switches:", "swiches:"),
            "net.yaml: line 10: unknown key 'swiches' in the topology; keys: hosts, name, "
            "defaults, regions, switches, links; did you mean 'switches'?");
  EXPECT_EQ(error_with("{name: b}", "{name: b, rack: 1}"),
            "net.yaml: line 9: unknown key 'rack' in a host; keys: name, region");
  EXPECT_EQ(error_with("delay: 0, ", "latency: 0, "),
            "net.yaml: line 15: unknown key 'latency' in a link; keys: between, rate, delay, "
            "buffer");
  EXPECT_EQ(error_with("delay: 2us", "jitter: 2us"),
            "net.yaml: line 2: unknown key 'jitter' in 'defaults'; keys: rate, delay, buffer");
  EXPECT_EQ(error_with("{name: b}", "{name: b, [x]: 1}"),
            "net.yaml: line 9: unknown key '(not a word)' in a host; keys: name, region");
}

TEST(Yaml, duplicate_names__both_lines) {
  EXPECT_EQ(error_with("{name: b}", "{name: a}"),
            "net.yaml: line 9: node name 'a' is used twice; first at line 8");
  EXPECT_EQ(error_with("{name: s, region: rack}", "{name: b}"),
            "net.yaml: line 11: node name 'b' is used twice; first at line 9");
  EXPECT_EQ(error_with("- name: pod", "- name: rack"),
            "net.yaml: line 6: region name 'rack' is used twice; first at line 4");
}

TEST(Yaml, duplicate_keys__both_lines) {
  EXPECT_EQ(error_with("switches:", "hosts:"),
            "net.yaml: line 10: key 'hosts' is given twice in the topology; first at line 8");
  EXPECT_EQ(error_with("{name: b}", "{name: b, name: c}"),
            "net.yaml: line 9: key 'name' is given twice in a host; first at line 9");
}

TEST(Yaml, bad_quantities__named) {
  EXPECT_EQ(error_with("rate: 2.5Gbps", "rate: 0"),
            "net.yaml: line 14: 'rate': 0 is out of range: 1bps to 1000Tbps");
  EXPECT_EQ(error_with("rate: 2.5Gbps", "rate: fast"),
            "net.yaml: line 14: 'rate': 'fast' is not a bandwidth: write a number and K, M, G or T "
            "(bits per second), as in 10G or 2.5Gbps");
  EXPECT_EQ(error_with("rate: 10G", "rate: 0G"),
            "net.yaml: line 2: 'rate': 0G is out of range: 1bps to 1000Tbps");
  EXPECT_EQ(error_with("delay: 0", "delay: 5s"),
            "net.yaml: line 15: 'delay': 5s is out of range: 0ps to 1s");
  EXPECT_NE(error_with("buffer: 0", "buffer: -3B").find("line 15: 'buffer': '-3B' is not a size"),
            std::string::npos);
  EXPECT_EQ(error_with("rate: 2.5Gbps", "rate: [1G]"),
            "net.yaml: line 14: 'rate' must be a single value, not a list");
  EXPECT_EQ(error_with("rate: 2.5Gbps", "rate:"),
            "net.yaml: line 14: key 'rate' in a link has no value");
  EXPECT_EQ(error_with("[a, s]", "[~, s]"),
            "net.yaml: line 13: 'between' must be a single value, not empty");
}

TEST(Yaml, missing_rate__named) {
  EXPECT_EQ(error_with("rate: 10G, ", ""),
            "net.yaml: line 15: a link has no 'rate', and 'defaults' gives none");
}

TEST(Yaml, bad_ends__named) {
  EXPECT_EQ(error_with("[s, b]", "[s, x]"),
            "net.yaml: line 15: 'between' names the unknown node 'x': name entries of 'hosts' or "
            "'switches'");
  EXPECT_EQ(error_with("[s, b]", "[b, b]"),
            "net.yaml: line 15: link b – b: joins a node to itself: name two different nodes");
  EXPECT_EQ(error_with("[s, b]", "[s]"),
            "net.yaml: line 15: 'between' must be a list of two node names");
  EXPECT_EQ(error_with("[s, b]", "s"),
            "net.yaml: line 15: 'between' must be a list of two node names");
  EXPECT_EQ(error_with("{between: [s, b], delay", "{delay"),
            "net.yaml: line 15: a link has no 'between'");
}

TEST(Yaml, unreachable_host__named_with_its_line) {
  EXPECT_EQ(error_with("  - {between: [s, b], delay: 0, buffer: 0}\n", ""),
            "net.yaml: line 9: host 'b' cannot be reached: it has no link");
  EXPECT_EQ(yaml_error_of("hosts:\n"
                          "  - {name: a}\n"
                          "  - {name: b}\n"
                          "switches: [{name: s}, {name: t}]\n"
                          "links: [{between: [a, s], rate: 1G}, {between: [b, t], rate: 1G}]\n"),
            "net.yaml: line 3: host 'b' cannot be reached from host 'a' (line 2); hosts do not "
            "forward");
}

TEST(Yaml, no_hosts__named) {
  EXPECT_EQ(yaml_error_of("switches: [{name: s}]\n"),
            "net.yaml: line 1: the topology has no 'hosts'");
  EXPECT_EQ(yaml_error_of("switches: [{name: s}]\nhosts: []\n"),
            "net.yaml: line 2: 'hosts' is empty: at least one host is needed");
}

TEST(Yaml, region_cycle__named_with_the_cycle) {
  EXPECT_EQ(error_with("- name: pod", "- {name: pod, parent: hall}\n  - {name: hall, parent: pod}"),
            "net.yaml: line 6: region 'pod' lies within itself: pod → hall → pod");
  EXPECT_EQ(error_with("parent: pod", "parent: rack"),
            "net.yaml: line 4: region 'rack' lies within itself: rack → rack");
}

TEST(Yaml, unknown_region__named) {
  EXPECT_EQ(error_with("parent: pod", "parent: pop"),
            "net.yaml: line 5: region 'rack' has the unknown parent 'pop': name an entry of "
            "'regions'");
  EXPECT_EQ(error_with("{name: a, region: rack}", "{name: a, region: reck}"),
            "net.yaml: line 8: 'a' is in the unknown region 'reck': name an entry of 'regions'");
}

TEST(Yaml, wrong_shapes__named) {
  EXPECT_EQ(yaml_error_of("- a\n- b\n"),
            "net.yaml: line 1: the topology must be a map with the keys hosts, name, defaults, "
            "regions, switches, links");
  EXPECT_EQ(yaml_error_of("hosts: 8\n"), "net.yaml: line 1: 'hosts' must be a list");
  EXPECT_EQ(yaml_error_of("hosts: [a]\n"),
            "net.yaml: line 1: a host must be a map with the keys name, region");
  EXPECT_EQ(yaml_error_of("hosts: [{region: x}]\n"), "net.yaml: line 1: a host has no 'name'");
  EXPECT_EQ(yaml_error_of("hosts: [{name: {x: y}}]\n"),
            "net.yaml: line 1: 'name' must be a single value, not a map");
  EXPECT_EQ(error_with("name: good", "name: [good]"),
            "net.yaml: line 1: 'name' must be a single value, not a list");
  EXPECT_EQ(error_with("{name: b}", "{name: ''}"),
            "net.yaml: line 9: host name '' is not allowed: use 1 to 128 bytes of UTF-8 without "
            "control characters");
}

TEST(Yaml, not_yaml__named) {
  EXPECT_NE(yaml_error_of("hosts: [{name: a}\nlinks:").find("not YAML"), std::string::npos);
  EXPECT_EQ(yaml_error_of(""), "net.yaml: line 1: the file is empty");
  EXPECT_EQ(yaml_error_of("hosts: [{name: a}]\n---\nhosts: [{name: b}]\n"),
            "net.yaml: more than one YAML document, or text after its end");
  EXPECT_EQ(yaml_error_of("hosts:\n  - {name: \xff\xfe}\n"),
            "net.yaml: line 2: byte 0xff is not text: UTF-8 without control characters is "
            "expected");
  EXPECT_EQ(yaml_error_of(std::string_view("a\n\n\0", 4)),
            "net.yaml: line 3: byte 0x00 is not text: UTF-8 without control characters is "
            "expected");
}

TEST(Yaml, hostile__deep_nesting_and_alias_bombs_are_errors) {
  for (const std::string_view unit : {"[", "{a: ", "- ", "? ", "&a ", "!a "}) {
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += unit;
    EXPECT_NE(yaml_error_of(text), "no error") << unit;
  }
  std::string bomb = "a: &a0 [x]\n";
  for (int i = 1; i < 40; ++i) {
    bomb += fmt::format("b{}: &a{} [*a{}, *a{}]\n", i, i, i - 1, i - 1);
  }
  EXPECT_NE(yaml_error_of(bomb).find("unknown key 'a'"), std::string::npos);
  EXPECT_NE(yaml_error_of("hosts: &h [*h]\n"), "no error");
}

// YAML::LoadAll of yaml-cpp 0.7 does not return on these.
TEST(Yaml, hostile__stray_brackets_are_errors) {
  for (const std::string_view text : {",o\nthc]s", "]", "hosts: [{name: a}]\n]", "}", "a: b\n,"}) {
    EXPECT_NE(yaml_error_of(text), "no error") << text;
  }
}

TEST(Yaml, too_large__refused) {
  EXPECT_NE(yaml_error_of(std::string(kMaxFileBytes + 1, ' ')).find("bytes are too many"),
            std::string::npos);
}

TEST(Yaml, round_trip__random_networks) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Topology before = random_topology(seed);
    const std::string text = topology_to_yaml(before);
    const Result<Topology> after = topology_from_yaml(text, "again.yaml");
    ASSERT_TRUE(after.ok()) << after.error().message() << "\n" << text;
    ASSERT_EQ(*after, before) << text;
  }
}

TEST(Yaml, round_trip__names_that_yaml_could_misread) {
  TopologyBuilder builder("");
  const NodeId s = builder.add_switch("null", kWholeNetwork).value();
  for (const std::string_view name :
       {"~",    "true",  "No",  "1.5",   "a: b",         "- x", "#c", "[a]", "{",
        "it's", "\"q\"", "\\n", " pad ", "*a",           "&a",  "!t", "%x",  "@",
        "`",    "a,b",   "?",   "é",     "\xe2\x82\xac", "---", "..."}) {
    const NodeId host = builder.add_host(std::string(name), kWholeNetwork).value();
    (void)builder.add_link(host, s, {Bandwidth::gbps(1), {}, {}}).value();
  }
  const Topology before = std::move(builder).build().value();
  const Result<Topology> after = topology_from_yaml(topology_to_yaml(before), "again.yaml");
  ASSERT_TRUE(after.ok()) << after.error().message();
  EXPECT_EQ(*after, before);
}

TEST(Yaml, to_yaml__reads_well) {
  const Topology t =
      topology_from_shorthand("leaf-spine:racks=1,hosts=1,spines=1,uplink=40G").value();
  EXPECT_EQ(topology_to_yaml(t),
            R"(name: "leaf-spine:racks=1,hosts=1,spines=1,uplink=40G"
regions:
  - {name: rack0}
hosts:
  - {name: rack0-host0, region: rack0}
switches:
  - {name: spine0}
  - {name: leaf0, region: rack0}
links:
  - {between: [rack0-host0, leaf0], rate: 10Gbps, delay: 1us, buffer: 512KiB}
  - {between: [leaf0, spine0], rate: 40Gbps, delay: 1us, buffer: 512KiB}
)");
}

}  // namespace
}  // namespace thalweg::topology
