#include "sim/scenario/scenario.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "scenario_fixture.h"

namespace thalweg::sim {
namespace {

using fixture::loaders;
using fixture::result_of;
using fixture::scenario_of;

constexpr const char* kGood = R"(name: all of it
topology: leaf-spine:racks=2,hosts=2,spines=2,host=10G,uplink=10G
transport: {kind: dctcp, iw: 20, rto_min: 2ms}
network:
  discipline: strict-priority
  port_buffer: 500kB
  mark_above: 97500B
  mark_per: queue
  balancing: per-packet
  framing: 20B
connections: {at_once: 2, warm: no}
seed: 7
until: 5s
jobs:
  - {model: tiny, scheme: "rat:trees=2", overlap: bytescheduler, partition: 64KiB, iterations: 3}
  - {name: other, model: tiny, scheme: ring, overlap: none, start: 1ms, slowdown: {rack0-host1: 2}}
flows:
  - {from: rack0-host0, to: rack1-host1, size: 1MB, at: 10us}
faults:
  - {at: 1ms, link: [leaf0, spine0], up: no}
  - {at: 2ms, link: [leaf0, spine0], up: yes}
  - {at: 1ms, link: [rack0-host0, leaf0], loss: 0.01}
  - {at: 1ms, link: [rack1-host0, leaf1], burst: [1000, 3]}
  - {at: 1ms, link: [rack1-host1, leaf1], rate: 0.5}
  - {at: 2ms, pause: rack1-host1}
  - {at: 3ms, resume: rack1-host1}
  - {at: 2ms, restart: leaf1}
)";

TEST(Scenario, everything__read_as_written) {
  const auto scenario = scenario_from_yaml(kGood, "good.yaml", loaders());
  ASSERT_TRUE(scenario.ok()) << scenario.error().message();
  EXPECT_EQ(scenario->topology->host_count(), 4);
  EXPECT_EQ(scenario->network.queues.discipline, QueueOptions::Discipline::kStrictPriority);
  EXPECT_EQ(scenario->network.queues.port_buffer, Bytes(500'000));
  EXPECT_FALSE(scenario->network.queues.per_port_marking);
  EXPECT_EQ(scenario->network.balancing, LoadBalancing::kPerPacket);
  EXPECT_EQ(scenario->network.framing_bytes, 20U);
  EXPECT_EQ(scenario->network.seed, 7U);
  EXPECT_EQ(scenario->most_at_once, 2);
  EXPECT_FALSE(scenario->warm);
  ASSERT_EQ(scenario->jobs.size(), 2U);
  EXPECT_EQ(scenario->jobs[0].training.overlap, Overlap::kByteScheduler);
  EXPECT_EQ(scenario->jobs[0].training.partition, Bytes(65'536));
  EXPECT_EQ(scenario->jobs[1].training.slowdown, (std::vector<double>{1, 2, 1, 1}));
  EXPECT_EQ(scenario->flows.size(), 1U);
  EXPECT_EQ(scenario->faults.size(), 8U);
}

TEST(Scenario, everything__runs_to_the_end_twice_alike) {
  const auto run = [] {
    const Scenario scenario = scenario_from_yaml(kGood, "good.yaml", loaders()).value();
    return run_scenario(scenario, {}).value();
  };
  const ScenarioResult a = run();
  const ScenarioResult b = run();
  EXPECT_TRUE(a.finished);
  EXPECT_EQ(a.violations, std::vector<std::string>{});
  EXPECT_EQ(a.flows_unfinished, 0U);
  ASSERT_EQ(a.jobs.size(), 2U);
  EXPECT_TRUE(a.jobs[0].done);
  EXPECT_EQ(a.jobs[0].iterations.size(), 3U);
  EXPECT_GT(a.counters.drops_fault, 0U);
  EXPECT_EQ(a.end, b.end);
  EXPECT_EQ(a.counters.events, b.counters.events);
  ASSERT_EQ(a.flows.size(), b.flows.size());
  for (std::size_t i = 0; i < a.flows.size(); ++i) EXPECT_EQ(a.flows[i].end, b.flows[i].end);
  for (const double u : a.arc_utilisation) EXPECT_LE(u, 1.0 + 1e-9);
}

TEST(Scenario, until_too_short__not_finished) {
  std::string text = kGood;
  text.replace(text.find("until: 5s"), 9, "until: 1us");
  const Scenario scenario = scenario_from_yaml(text, "s.yaml", loaders()).value();
  const ScenarioResult result = run_scenario(scenario, {}).value();
  EXPECT_FALSE(result.finished);
  EXPECT_EQ(result.violations, std::vector<std::string>{});
}

struct BadCase {
  const char* from;
  const char* to;
  const char* line;
  const char* word;
};

// Each change of the good text must give an error that names the line and contains the word.
void expect_refused(const std::string& good, const std::vector<BadCase>& cases) {
  for (const BadCase& bad : cases) {
    std::string text = good;
    const std::size_t at = text.find(bad.from);
    ASSERT_NE(at, std::string::npos) << bad.from;
    text.replace(at, std::string_view(bad.from).size(), bad.to);
    const auto scenario = scenario_from_yaml(text, "bad.yaml", loaders());
    ASSERT_FALSE(scenario.ok()) << bad.to;
    const std::string& message = scenario.error().message();
    EXPECT_NE(message.find(fmt::format("bad.yaml: {}:", bad.line)), std::string::npos) << message;
    EXPECT_NE(message.find(bad.word), std::string::npos) << message;
  }
}

TEST(Scenario, bad_input__names_the_line_and_what_is_allowed) {
  expect_refused(kGood,
                 {
                     {"seed: 7", "sede: 7", "line 12", "sede"},
                     {"kind: dctcp", "kind: bbr", "line 3", "newreno"},
                     {"iw: 20", "iw: -1", "line 3", "iw"},
                     {"rto_min: 2ms", "rto_min: 2", "line 3", "rto_min"},
                     {"hosts=2,spines", "hosts=0,spines", "line 2", "hosts"},
                     {"discipline: strict-priority", "discipline: red", "line 5", "fifo"},
                     {"port_buffer: 500kB", "port_buffer: 500", "line 6", "port_buffer"},
                     {"balancing: per-packet", "balancing: magic", "line 9", "flow-hash"},
                     {"warm: no", "warm: perhaps", "line 11", "yes"},
                     {"until: 5s", "until: 5", "line 13", "until"},
                     {"model: tiny, scheme: ring", "model: huge, scheme: ring", "line 16", "huge"},
                     {"scheme: ring", "scheme: rings", "line 16", "rings"},
                     {"overlap: none", "overlap: some", "line 16", "wait-free"},
                     {"iterations: 3", "iterations: 0", "line 15", "iterations"},
                     {"rack0-host1: 2}", "rack9-host1: 2}", "line 16", "rack9-host1"},
                     {"size: 1MB", "size: -1MB", "line 18", "size"},
                     {"to: rack1-host1", "to: rack0-host0", "line 18", "itself"},
                     {"to: rack1-host1", "to: leaf0", "line 18", "not a host"},
                     {"loss: 0.01", "loss: 2", "line 22", "loss"},
                     {"[leaf0, spine0], up: no", "[leaf0, leaf1], up: no", "line 20", "no link"},
                     {"pause: rack1-host1", "pause: leaf1", "line 25", "not a host"},
                     {"restart: leaf1", "restart: rack0-host0", "line 27", "not a switch"},
                     {"up: yes", "up: yes, rate: 1", "line 21", "one of"},
                 });
}

constexpr const char* kMore = R"(variables: {n: 4}
topology: leaf-spine:racks=2,hosts=${n},spines=2,host=10G,uplink=10G
transport: newreno
network: {host_queue: 30kB, shared_buffer: 300kB}
connections: {per_worker: 2}
jobs:
  - {size: 400kB, scheme: ring, hosts: [rack1-host0, "rack0-*"], slowdown: {rack0-host0: 3}, iterations: 2}
  - {model: tiny, scheme: rat, hosts: ["*-host1", "*-host2"], transport: {kind: dctcp, iw: 4}}
background:
  - {name: others, pattern: random, size: {10kB: 0.5, 20kB: 1}, load: 0.1, from: ["rack0-*"], to: ["rack1-*"]}
  - {pattern: incast, size: 5kB, every: 100us, to: [rack0-host3], start: 1ms, stop: 2ms, transport: pfabric}
faults:
  - {at: 0ms, random_pause: {hosts: 1, every: 300us}}
sweep: {n: [4, 8]}
)";

TEST(Scenario, jobs_on_part_of_the_hosts__run_there_and_nowhere_else) {
  const auto scenario = scenario_from_yaml(kMore, "more.yaml", loaders());
  ASSERT_TRUE(scenario.ok()) << scenario.error().message();
  ASSERT_EQ(scenario->jobs.size(), 2U);
  EXPECT_EQ(scenario->jobs[0].hosts, (std::vector{Rank(4), Rank(0), Rank(1), Rank(2), Rank(3)}));
  EXPECT_EQ(scenario->jobs[0].training.slowdown, (std::vector<double>{1, 3, 1, 1, 1}));
  EXPECT_EQ(scenario->jobs[1].hosts, (std::vector{Rank(1), Rank(5), Rank(2), Rank(6)}));
  const ScenarioResult result = run_scenario(*scenario, {}).value();
  EXPECT_TRUE(result.finished);
  EXPECT_EQ(result.violations, std::vector<std::string>{});
  EXPECT_EQ(result.groups, (std::vector<std::string>{"flows", "allreduce of 400kB", "tiny",
                                                     "others", "background"}));
  std::vector<int> flows_of(result.groups.size());
  for (const FlowResult& flow : result.flows) {
    ++flows_of[flow.spec.tag];
    if (flow.spec.tag == 0 || flow.spec.tag > 2) continue;
    const auto& hosts = scenario->jobs[flow.spec.tag - 1].hosts;
    EXPECT_NE(std::ranges::find(hosts, flow.spec.source), hosts.end());
    EXPECT_NE(std::ranges::find(hosts, flow.spec.target), hosts.end());
  }
  EXPECT_EQ(flows_of[0], 0);
  // A ring of 5 sends 8 rounds of 5 messages, twice.
  EXPECT_EQ(flows_of[1], 80);
  EXPECT_GT(flows_of[2], 0);
  EXPECT_GT(flows_of[3], 0);
  EXPECT_EQ(flows_of[4] % 7, 0);
}

TEST(Scenario, background_job__goes_on_as_long_as_others_and_slows_them) {
  const auto pace_with = [](const char* more) {
    const ScenarioResult result = result_of(scenario_of(fmt::format(
        R"(topology: leaf-spine:racks=2,hosts=3,spines=1,host=10G,uplink=10G
transport: {{kind: dctcp, rto_min: 5ms}}
network: {{port_buffer: 2MB, mark_above: 100kB}}
jobs:
  - {{size: 4MB, scheme: ring, iterations: 3, hosts: [rack0-host0, rack0-host1, rack1-host0]}}
{})",
        more)));
    EXPECT_TRUE(result.finished);
    EXPECT_TRUE(result.jobs[0].done);
    if (result.jobs.size() > 1) {
      EXPECT_GT(result.jobs[1].iterations.size(), 0U);
      EXPECT_LT((result.end - result.jobs[0].iterations.back().end).ms(), 10);
    }
    return (result.jobs[0].iterations.back().end - result.jobs[0].iterations.front().start).ms();
  };
  const double alone = pace_with("");
  const double shared = pace_with(
      "  - {size: 2MB, scheme: asp, background: yes, hosts: [rack0-host2, rack1-host2]}\n");
  EXPECT_GT(shared, 1.3 * alone);
}

// Three hosts send to one, by DLCP, in queue 1.
ScenarioResult incast_with(const std::string& network) {
  return result_of(scenario_of(fmt::format(R"(topology: single-switch:hosts=4,host=10G
transport: dlcp
network: {{discipline: strict-priority, port_buffer: 512kB, control_reserve: 16kB, {}}}
flows:
  - {{from: host1, to: host0, size: 1MB}}
  - {{from: host2, to: host0, size: 1MB}}
  - {{from: host3, to: host0, size: 1MB}}
)",
                                           network)));
}

TEST(Scenario, thresholds_of_queues__each_holds_for_its_own) {
  const ScenarioResult first =
      incast_with("selective_thresholds: [20kB, 400kB, 400kB, 400kB, 400kB, 400kB, 400kB]");
  EXPECT_GT(first.counters.drops_selective, 100U);
  EXPECT_GT(first.counters.marks, 100U);
  const ScenarioResult others =
      incast_with("selective_thresholds: [500kB, 1kB, 1kB, 1kB, 1kB, 1kB, 1kB]");
  EXPECT_EQ(others.counters.drops_selective, 0U);
  EXPECT_GT(others.counters.drops_full, 0U);
  const ScenarioResult limited =
      incast_with("queue_limits: [30kB, 400kB, 400kB, 400kB, 400kB, 400kB, 400kB]");
  EXPECT_GT(limited.counters.drops_full, others.counters.drops_full);
}

TEST(Scenario, thresholds_of_queues__refused_where_they_make_no_sense) {
  constexpr const char* kTuned = R"(topology: single-switch:hosts=4,host=10G
transport: dlcp
network:
  discipline: strict-priority
  selective_thresholds: [1kB, 2kB, 3kB, 4kB, 5kB, 6kB, 7kB]
  queue_limits: [2kB, 3kB, 4kB, 5kB, 6kB, 7kB, 8kB]
flows:
  - {from: host0, to: host1, size: 1MB}
)";
  expect_refused(
      kTuned,
      {
          {"6kB, 7kB]", "6kB]", "line 5", "7 data queues"},
          {"[2kB, 3kB", "[2kB, 0B", "line 6", "queue_limits"},
          {"[2kB, 3kB", "[2kB, 1kB", "line 4", "queue 2"},
          {"  discipline: strict-priority", "  discipline: fifo", "line 4", "strict-priority"},
          {"  discipline:", "  selective_threshold: 1kB\n  discipline:", "line 4", "not by both"},
      });
}

TEST(Scenario, host_queue__nothing_piles_up_at_a_host) {
  const auto most_waiting = [](const char* limit) {
    const std::string text = fmt::format(R"(topology: single-switch:hosts=4,host=10G
transport: newreno
network: {{host_queue: {}}}
flows:
  - {{from: host0, to: host1, size: 3MB}}
  - {{from: host0, to: host2, size: 3MB}}
  - {{from: host0, to: host3, size: 3MB}}
)",
                                         limit);
    const ScenarioResult result = result_of(scenario_of(text));
    EXPECT_EQ(result.flows.size(), 3U);
    // In turn, all three end together, and the link is never idle.
    if (std::string_view(limit) != "0B") {
      EXPECT_LT(result.flows.back().end - result.flows.front().end, Duration::microseconds(20));
      EXPECT_LT(result.end.since_start(), Duration::microseconds(7600));
    }
    return result.counters.peak_host_backlog;
  };
  EXPECT_LE(most_waiting("20kB"), 20'000U + 1'500U);
  EXPECT_GT(most_waiting("0B"), 100'000U);
}

TEST(Scenario, bad_input_of_more__names_the_line_and_what_is_allowed) {
  expect_refused(
      kMore,
      {
          {"size: 400kB, scheme", "size: 400kB, model: tiny, scheme", "line 7", "either"},
          {"size: 400kB, scheme", "scheme", "line 7", "either"},
          {"\"rack0-*\"], slow", "\"rack7-*\"], slow", "line 7", "rack7-*"},
          {"{rack0-host0: 3}", "{rack1-host3: 3}", "line 7", "does not run"},
          {"kind: dctcp, iw: 4", "kind: tcp, iw: 4", "line 8", "newreno"},
          {"pattern: random", "pattern: chaos", "line 10", "permutation"},
          {"load: 0.1", "load: 0.1, every: 1ms", "line 10", "either"},
          {"{10kB: 0.5, 20kB: 1}", "{10kB: 0.5, 20kB: 0.9}", "line 10", "must be 1"},
          {"{10kB: 0.5, 20kB: 1}", "hadoop", "line 10", "web-search"},
          {"every: 100us, to: [rack0-host3]", "every: 100us, to: [leaf0]", "line 11", "not a host"},
          {"stop: 2ms", "stop: 2", "line 11", "stop"},
          {"hosts: 1, every", "hosts: 9, every", "line 13", "hosts"},
          {"every: 300us}", "every: 0us}", "line 13", "every"},
          {"per_worker: 2", "per_worker: -2", "line 5", "per_worker"},
          {"sweep: {n: [4, 8]}", "sweep: {n: 4}", "line 14", "list of values"},
          {"hosts=${n}", "hosts=${m}", "line 2", "'m' is not a variable"},
      });
}

TEST(Scenario, forward_packets__needs_streams_and_no_limits_of_messages) {
  const std::string text =
      "topology: single-switch:hosts=2\ntransport: cubic\n"
      "connections: {forward: packets}\njobs:\n  - {size: 1MB, scheme: ring}\n";
  EXPECT_TRUE(scenario_of(text).in_pieces);
  EXPECT_FALSE(scenario_of("topology: single-switch:hosts=2\ntransport: pias\n"
                           "connections: {forward: chunks, at_once: 2}\n"
                           "jobs:\n  - {size: 1MB, scheme: ring}\n")
                   .in_pieces);
  expect_refused(text,
                 {
                     {"packets", "bytes", "line 3", "chunks"},
                     {"forward: packets", "forward: packets, at_once: 2", "line 3", "at_once"},
                     {"forward: packets", "forward: packets, warm: no", "line 3", "warm"},
                     {"cubic", "pias", "line 5", "newreno, cubic, dctcp, dlcp"},
                     {"cubic", "pfabric", "line 5", "newreno, cubic, dctcp, dlcp"},
                 });
}

// Without a barrier ranks drift apart, which no rank sees in the time of its own calls.
TEST(Scenario, slowest_worker__does_not_count_how_far_workers_are_apart) {
  const ScenarioResult result = fixture::result_of(
      scenario_of("topology: single-switch:hosts=4,host=200M,delay=50us\ntransport: newreno\n"
                  "network: {host_queue: 25kB}\nconnections: {forward: packets}\njobs:\n"
                  "  - {size: 1MiB, scheme: halving-doubling, overlap: none, iterations: 8}\n"));
  const std::vector<IterationResult>& iterations = result.jobs.front().iterations;
  ASSERT_EQ(iterations.size(), 8U);
  EXPECT_EQ(iterations.front().slowest_worker, iterations.front().duration());
  for (const IterationResult& iteration : iterations) {
    EXPECT_LE(iteration.slowest_worker, iteration.duration());
  }
  EXPECT_LT(iterations.back().slowest_worker.ms(), 0.97 * iterations.back().duration().ms());
}

TEST(Scenario, nothing_to_do__an_error) {
  const auto scenario = scenario_from_yaml("topology: single-switch:hosts=2\ntransport: dctcp\n",
                                           "empty.yaml", loaders());
  ASSERT_FALSE(scenario.ok());
  EXPECT_NE(scenario.error().message().find("neither"), std::string::npos);
}

}  // namespace
}  // namespace thalweg::sim
