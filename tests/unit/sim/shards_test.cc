// A network that is divided into shards gives the same result as one that is not.
#include <fmt/format.h>

#include <string>

#include "base/prng.h"
#include "fabric_fixture.h"
#include "sanitized.h"
#include "scenario_fixture.h"
#include "sim/core/shard_map.h"
#include "sim/scenario/result_json.h"

namespace thalweg::sim {
namespace {

using fixture::scenario_of;

// Everything that a run tells: the JSON, and every flow.
std::string outcome_of(const Scenario& scenario, const Sharding& sharding) {
  Result<ScenarioResult> result = run_scenario(scenario, {}, nullptr, sharding);
  if (!result.ok()) return result.error().message();
  EXPECT_EQ(result->violations, std::vector<std::string>{});
  std::string text = to_json(*result, scenario).dump(1);
  for (const FlowResult& flow : result->flows) {
    text +=
        fmt::format("\n{} {} {} {} {} {} {} {}", flow.spec.source.value(), flow.spec.target.value(),
                    flow.spec.bytes, flow.asked.since_start().ps(), flow.start.since_start().ps(),
                    flow.end.since_start().ps(), flow.counters.retransmissions, flow.oracle.ps());
  }
  return text;
}

template <class T>
T one_of(Prng& prng, const std::vector<T>& choices) {
  return choices[prng.below(choices.size())];
}

// A small scenario with traffic and faults of many kinds, all drawn from the seed.
std::string random_scenario(std::uint64_t seed) {
  Prng prng(seed);
  const auto racks = 2 + prng.below(5);
  const auto hosts = 1 + prng.below(4);
  const auto all = racks * hosts;
  const bool fat = prng.chance(0.2);
  std::string text = fmt::format(
      "topology: {}\nseed: {}\n",
      fat ? "\"fat-tree:k=4,host=10G\""
          : fmt::format("\"leaf-spine:racks={},hosts={},spines={},host=10G,uplink={}\"", racks,
                        hosts, 1 + prng.below(3), one_of<std::string>(prng, {"10G", "40G"})),
      1 + prng.below(1000));
  const std::string transport =
      one_of<std::string>(prng, {"dctcp", "newreno", "cubic", "pias", "pfabric"});
  text += fmt::format("transport: {}\n", transport);
  text += fmt::format(
      "network: {{port_buffer: {}, mark_above: 20kB, discipline: {}, balancing: {}{}}}\n",
      one_of<std::string>(prng, {"30kB", "200kB"}),
      transport == "pfabric" ? "pfabric" : one_of<std::string>(prng, {"fifo", "strict-priority"}),
      one_of<std::string>(prng, {"flow-hash", "per-packet", "label"}),
      transport == "pfabric"
          ? ""
          : one_of<std::string>(
                prng, {"", ", host_queue: 12kB", ", socket_queue: 20kB", ", shared_buffer: 60kB"}));
  const bool at_once = prng.chance(0.5);
  text += fmt::format("connections: {{at_once: {}, per_worker: {}, warm: {}}}\n", at_once ? 0 : 1,
                      prng.below(3), prng.chance(0.5) ? "yes" : "no");
  text += fmt::format("jobs:\n  - {{model: tiny, {}, overlap: {}, iterations: {}, part: 0.2}}\n",
                      one_of<std::string>(prng, {"scheme: ring", "scheme: rat", "scheme: ps",
                                                 "scheme: \"ps:servers=2\"", "scheme: butterfly",
                                                 "scatter: {servers: 2, whole: 100kB}"}),
                      one_of<std::string>(prng, {"none", "wait-free", "bytescheduler"}),
                      1 + prng.below(3));
  if (prng.chance(0.5)) {
    text += fmt::format("background:\n  - {{pattern: {}, size: 20kB, every: 50us{}}}\n",
                        one_of<std::string>(prng, {"random", "permutation", "incast"}),
                        one_of<std::string>(prng, {"", ", count: 30"}));
  }
  if (fat || all < 3) return text;
  text += "flows:\n";
  for (int i = 0; i < 5; ++i) {
    const auto from = prng.below(all);
    const auto to = (from + 1 + prng.below(all - 1)) % all;
    text += fmt::format("  - {{from: rack{}-host{}, to: rack{}-host{}, size: {}B, at: {}us}}\n",
                        from / hosts, from % hosts, to / hosts, to % hosts, 1 + prng.below(200'000),
                        prng.below(1000));
  }
  if (prng.chance(0.5)) {
    text += fmt::format(
        "faults:\n"
        "  - {{at: 100us, link: [rack0-host0, leaf0], loss: 0.02}}\n"
        "  - {{at: 150us, link: [leaf1, spine0], rate: 0.3}}\n"
        "  - {{at: 200us, link: [leaf0, spine0], up: no}}\n"
        "  - {{at: 260us, restart: leaf1}}\n"
        "  - {{at: 300us, pause: rack1-host0}}\n"
        "  - {{at: 500us, link: [leaf0, spine0], up: yes}}\n"
        "  - {{at: 700us, resume: rack1-host0}}\n"
        "  - {{at: 800us, random_pause: {{hosts: 1, every: 300us}}}}\n");
  }
  return text;
}

TEST(Shards, random_scenarios__any_number_gives_the_same_result) {
  const std::uint64_t seeds = kUnderSanitizer ? 5 : 30;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const std::string text = random_scenario(seed);
    const Scenario scenario = scenario_of(text);
    const std::string one = outcome_of(scenario, {});
    for (const std::size_t shards : {2U, 3U, 5U}) {
      ASSERT_EQ(outcome_of(scenario, {.shards = shards}), one)
          << "seed " << seed << ", " << shards << " shards\n"
          << text;
    }
  }
}

// With a lookahead that is too large, shards miss what others did: the checkers must say so.
TEST(Shards, lookahead__one_that_is_too_large_is_found) {
  const Scenario scenario = scenario_of(
      "topology: \"leaf-spine:racks=4,hosts=4,spines=2,host=10G,uplink=10G\"\n"
      "transport: dctcp\njobs:\n  - {model: tiny, scheme: ring}\n");
  const auto result =
      run_scenario(scenario, {}, nullptr, {.shards = 4, .lookahead = Duration::microseconds(500)});
  ASSERT_TRUE(result.ok()) << result.error().message();
  EXPECT_FALSE(result->violations.empty());
}

TEST(Shards, why_one_shard__says_what_cannot_be_divided) {
  const std::string network = "topology: \"leaf-spine:racks=2,hosts=2,spines=1\"\n";
  EXPECT_EQ(why_one_shard(scenario_of(network + "transport: dctcp\njobs:\n"
                                                "  - {model: tiny, scheme: rat}\n")),
            std::nullopt);
  EXPECT_EQ(why_one_shard(scenario_of(network + "transport: dlcp\njobs:\n"
                                                "  - {model: tiny, scheme: rat}\n")),
            "flows of DLCP");
  EXPECT_EQ(
      why_one_shard(scenario_of(network + "transport: dctcp\njobs:\n"
                                          "  - {model: tiny, scheme: \"ssp:staleness=1\"}\n")),
      "a bound on staleness");
}

TEST(ShardMap, leaf_spine__racks_stay_whole_and_shards_are_even) {
  const topology::Topology net =
      fixture::topology("leaf-spine:racks=9,hosts=16,spines=4,host=100G,uplink=400G");
  const ShardMap map(net, 4);
  ASSERT_EQ(map.count(), 4U);
  std::vector<int> hosts(map.count(), 0);
  for (Rank rank(0); rank.value() < net.host_count(); ++rank) {
    const topology::NodeId host = net.host(rank);
    const std::size_t shard = map.of_node(host.index());
    ++hosts[shard];
    EXPECT_EQ(map.of_node(net.arc(net.arcs_from(host)[0]).to.index()), shard);
  }
  for (const int count : hosts) EXPECT_GE(count, 32);
  EXPECT_EQ(ShardMap(net, 100).count(), 9U);
}

TEST(ShardMap, no_delay_between_racks__one_shard) {
  topology::TopologyBuilder builder("two racks");
  const auto spec = [](std::int64_t ns) {
    return topology::LinkSpec{Bandwidth::gbps(10), Duration::nanoseconds(ns), Bytes(0)};
  };
  const topology::NodeId a = *builder.add_switch("a", topology::kWholeNetwork);
  const topology::NodeId b = *builder.add_switch("b", topology::kWholeNetwork);
  for (const auto& [name, at] : {std::pair("x", a), std::pair("y", b)}) {
    const topology::NodeId host = *builder.add_host(name, topology::kWholeNetwork);
    ASSERT_TRUE(builder.add_link(host, at, spec(1000)).ok());
  }
  ASSERT_TRUE(builder.add_link(a, b, spec(0)).ok());
  const topology::Topology net = std::move(builder).build().value();
  EXPECT_EQ(ShardMap(net, 2).count(), 1U);
}

}  // namespace
}  // namespace thalweg::sim
