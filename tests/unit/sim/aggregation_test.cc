// ATP and SwitchML in the simulator. Network::violations() checks every run here too: each sum that
// reaches a worker has every contribution once, and no aggregator is kept for ever.
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "base/prng.h"
#include "scenario_fixture.h"

namespace thalweg::sim::fixture {
namespace {

constexpr const char* kOneRack =
    "topology: single-switch:hosts=9,host=100G,delay=1us\n"
    "network: {framing: 24B, port_buffer: 1MB, mark_above: 100kB}\n"
    "aggregation: {slots: 4096}\n";
constexpr const char* kWorkers = "hosts: [host0, host1, host2, host3, host4, host5, host6, host7]";

// One job of 8 workers, with its server on the ninth host.
std::string one_rack(const std::string& transport, const std::string& size) {
  return fmt::format("{}transport: {}\njobs: [{{size: {}, {}{}}}]\n", kOneRack, transport, size,
                     kWorkers,
                     transport.find("atp") == std::string::npos ? "" : ", servers: [host8]");
}

// Three racks of 4 under two spines; the server is the last host.
std::string three_racks(const std::string& aggregation, const std::string& transport) {
  return fmt::format(
      "topology: leaf-spine:racks=3,hosts=4,spines=2,host=100G,uplink=100G,delay=1us\n"
      "transport: {}\nnetwork: {{framing: 24B, port_buffer: 1MB, mark_above: 100kB}}\n"
      "aggregation: {}\njobs: [{{size: 1MB, hosts: [rack0-*, rack1-*, rack2-host0, rack2-host1], "
      "servers: [rack2-host3]}}]\n",
      transport, aggregation);
}

std::uint64_t sequences_of(std::uint64_t bytes) { return (bytes + 255) / 256; }

std::string error_of(const std::string& text) {
  const auto scenario = scenario_from_yaml(text, "test", loaders());
  if (!scenario.ok()) return scenario.error().message();
  const auto result = run_scenario(*scenario, {});
  return result.ok() ? "" : result.error().message();
}

// The target: 0.9 of what the link allows for the packet size.
TEST(Aggregation, goodput__one_rack_at_100_gbps__is_near_the_limit) {
  const double atp = result_of(scenario_of(one_rack("atp", "4MB"))).jobs[0].goodput_gbps;
  EXPECT_GE(atp, 0.9 * 100 * 256.0 / (306 + 24));
  EXPECT_LE(atp, 100 * 256.0 / (306 + 24));
  const double large =
      result_of(scenario_of(one_rack("{kind: atp, elements: 350}", "4MB") + "name: large\n",
                            {{"aggregation.elements", "350"}}))
          .jobs[0]
          .goodput_gbps;
  EXPECT_GE(large, 0.9 * 100 * 1400.0 / (1450 + 24));
  const double switchml = result_of(scenario_of(one_rack("switchml", "4MB"))).jobs[0].goodput_gbps;
  EXPECT_GE(switchml, 0.9 * 100 * 128.0 / (180 + 24));
  EXPECT_LT(switchml, atp);
}

TEST(Aggregation, packets_at_server__one_a_sequence_however_many_workers) {
  const ScenarioResult result = result_of(scenario_of(one_rack("atp", "1MB")));
  const AggregationCounters& c = *result.jobs[0].aggregation;
  EXPECT_EQ(c.at_servers, sequences_of(1'000'000));
  EXPECT_EQ(c.sent, 8 * sequences_of(1'000'000));
  EXPECT_EQ(c.aggregated, c.sent);
  EXPECT_EQ(c.collisions + c.retransmissions + c.partial_sums + c.expired, 0U);
}

TEST(Aggregation, two_levels__racks_are_summed_apart_and_then_together) {
  const ScenarioResult result = result_of(scenario_of(three_racks("{slots: 4096}", "atp")));
  const AggregationCounters& c = *result.jobs[0].aggregation;
  const std::uint64_t sequences = sequences_of(1'000'000);
  EXPECT_EQ(c.at_servers, sequences);
  EXPECT_EQ(c.completed, 4 * sequences);          // three racks, and the server's switch
  EXPECT_EQ(c.aggregated, (10 + 3) * sequences);  // workers, then racks
}

// Workers behind switches without aggregation are groups of their own.
TEST(Aggregation, two_levels__some_racks_without_aggregation) {
  const std::uint64_t sequences = sequences_of(1'000'000);
  const auto at_servers = [&](const std::string& switches) {
    const std::string aggregation = "{slots: 4096, switches: [" + switches + "]}";
    return result_of(scenario_of(three_racks(aggregation, "atp"))).jobs[0].aggregation->at_servers;
  };
  EXPECT_EQ(at_servers("leaf2"), sequences);
  EXPECT_EQ(at_servers("leaf0, leaf2"), sequences);
  EXPECT_EQ(at_servers("leaf0"), (1 + 4 + 2) * sequences);
}

TEST(Aggregation, several_servers__share_the_sequences) {
  const std::string text = fmt::format(
      "{}transport: atp\njobs: [{{size: 1MB, hosts: [host0, host1, host2], servers: [host3, host4, "
      "host0]}}]\n",
      kOneRack);
  const ScenarioResult result = result_of(scenario_of(text));
  // Sums of different servers overtake each other, which sometimes looks like loss.
  EXPECT_GE(result.jobs[0].aggregation->at_servers, sequences_of(1'000'000));
  EXPECT_LE(result.jobs[0].aggregation->at_servers, sequences_of(1'100'000));
}

// All eight workers are servers. If each adds its own gradients, its link carries the tensor once
// in each direction, and otherwise an eighth more.
TEST(Aggregation, own_sums__cost_no_share_of_a_server) {
  const std::string text =
      fmt::format("{}jobs: [{{size: 4MB, {}, servers: {}}}]\n", kOneRack, kWorkers,
                  std::string(kWorkers).substr(std::string("hosts: ").size()));
  const auto run = [&](const char* transport) {
    return result_of(scenario_of(text + "transport: " + transport + "\n"));
  };
  const ScenarioResult own = run("atp");
  const ScenarioResult paper = run("{kind: atp, own_sums: off}");
  const std::uint64_t sequences = sequences_of(4'000'000);
  EXPECT_EQ(own.jobs[0].aggregation->at_servers, sequences);
  EXPECT_EQ(own.jobs[0].aggregation->sent, 7 * sequences);
  EXPECT_EQ(paper.jobs[0].aggregation->sent, 8 * sequences);
  EXPECT_EQ(own.jobs[0].aggregation->retransmissions, 0U);
  const double limit = 100 * 256.0 / (306 + 24);
  EXPECT_GT(own.jobs[0].goodput_gbps, 0.93 * limit);
  EXPECT_LT(paper.jobs[0].goodput_gbps, limit * 8 / 9);
}

// Switches on the path that have nothing to sum for the job let its packets pass.
TEST(Aggregation, server_behind_other_switches__gets_one_packet_a_sequence) {
  for (const char* const hosts : {"rack0-*", "rack0-host0, rack0-host1"}) {
    const ScenarioResult result = result_of(scenario_of(
        three_racks("{slots: 4096}", "atp"), {{"jobs.0.hosts", fmt::format("[{}]", hosts)}}));
    ASSERT_TRUE(result.finished);
    EXPECT_EQ(result.jobs[0].aggregation->at_servers, sequences_of(1'000'000));
  }
  const ScenarioResult core =
      result_of(scenario_of(three_racks("{slots: 4096, switches: [spine0]}", "atp")));
  ASSERT_TRUE(core.finished);
  EXPECT_EQ(core.jobs[0].aggregation->at_servers, 10 * sequences_of(1'000'000));
}

TEST(Aggregation, server_that_is_the_first_worker) {
  const ScenarioResult result = result_of(scenario_of(
      std::string(kOneRack) + "transport: atp\njobs: [{size: 1MB, servers: [host0]}]\n"));
  EXPECT_TRUE(result.finished && result.jobs[0].done);
}

TEST(Aggregation, forwarding__reaches_the_server_packet_by_packet) {
  const auto all = result_of(scenario_of(one_rack("{kind: atp, forwarding: 1}", "256kB")));
  EXPECT_EQ(all.jobs[0].aggregation->aggregated, 0U);
  EXPECT_EQ(all.jobs[0].aggregation->forwarded, all.jobs[0].aggregation->sent);
  const auto half = result_of(scenario_of(one_rack("{kind: atp, forwarding: 0.5}", "256kB")));
  EXPECT_NEAR(static_cast<double>(half.jobs[0].aggregation->forwarded), 4000, 300);
  EXPECT_LT(all.jobs[0].goodput_gbps, half.jobs[0].goodput_gbps / 1.5);
}

TEST(Aggregation, two_jobs__share_a_few_aggregators) {
  const std::string text =
      "topology: single-switch:hosts=8,host=100G,delay=1us\ntransport: atp\n"
      "network: {port_buffer: 1MB, mark_above: 100kB}\naggregation: {slots: 32, hash: sequence}\n"
      "jobs:\n"
      "  - {size: 1MB, hosts: [host0, host1, host2], servers: [host6]}\n"
      "  - {size: 1MB, hosts: [host3, host4, host5], servers: [host7]}\n";
  const ScenarioResult result = result_of(scenario_of(text));
  for (const JobResult& job : result.jobs) {
    EXPECT_TRUE(job.done);
    EXPECT_GT(job.aggregation->collisions, 100U);
    EXPECT_GT(job.aggregation->completed, 100U);
    EXPECT_LE(job.aggregation->most_slots, 32U);
  }
}

TEST(Aggregation, loss_on_one_workers_link__is_made_good) {
  for (const char* const transport : {"atp", "{kind: atp, dupacks: 0}", "switchml"}) {
    SCOPED_TRACE(transport);
    const std::string faults = "faults: [{at: 0us, link: [host0, switch0], loss: 0.01}]\n";
    const auto clean = result_of(scenario_of(one_rack(transport, "1MB")));
    const auto lossy = result_of(scenario_of(one_rack(transport, "1MB") + faults));
    EXPECT_TRUE(lossy.jobs[0].done);
    EXPECT_GT(lossy.jobs[0].aggregation->retransmissions, 10U);
    EXPECT_GT(lossy.jobs[0].iterations[0].duration(), clean.jobs[0].iterations[0].duration());
  }
}

// The workers serve, too. A packet that one worker loses must cost neither the others' windows nor
// their packets.
TEST(Aggregation, loss_on_all_links__costs_at_most_15_percent) {
  const std::string hosts = "[host0, host1, host2, host3, host4, host5, host6, host7]";
  std::string text = fmt::format(
      "topology: single-switch:hosts=8,host=100M,delay=100us\n"
      "transport: {{kind: atp, elements: 256, header: 74B, timeout: 100ms, timeout_min: 10ms}}\n"
      "network: {{framing: 24B, port_buffer: 1MB}}\naggregation: {{slots: 4096, elements: 256}}\n"
      "jobs: [{{size: 4MB, iterations: 5, hosts: {0}, servers: {0}}}]\n",
      hosts);
  const auto mean_ms = [&](double loss) {
    std::string faults = "faults:\n";
    for (int host = 0; host < 8; ++host) {
      faults += fmt::format("  - {{at: 0us, link: [host{}, switch0], loss: {}}}\n", host, loss);
    }
    const auto result = result_of(scenario_of(text + (loss > 0 ? faults : "")));
    EXPECT_TRUE(result.jobs[0].done);
    Duration sum;
    for (const auto& iteration : result.jobs[0].iterations) sum += iteration.duration();
    return sum.ms() / 5;
  };
  const double clean = mean_ms(0);
  EXPECT_LT(mean_ms(0.0025), 1.10 * clean);
  EXPECT_LT(mean_ms(0.01), 1.15 * clean);
}

// No end hangs: the server gives up, names the missing worker, and tells the others; the lost
// worker finds out by itself.
TEST(Aggregation, dead_worker__fails_the_job_at_every_survivor) {
  const ScenarioResult result =
      result_of(scenario_of(one_rack("{kind: atp, deadline: 50ms}", "1MB") +
                            "faults: [{at: 20us, link: [host3, switch0], up: no}]\n"),
                false);
  EXPECT_FALSE(result.jobs[0].done);
  ASSERT_EQ(result.failures.size(), 1 + 8U);
  for (std::size_t i = 0; i < 1 + 7; ++i) {
    EXPECT_NE(result.failures[i].find("3 of group 0"), std::string::npos) << result.failures[i];
  }
  EXPECT_NE(result.failures.back().find("deadline"), std::string::npos) << result.failures.back();
}

TEST(Aggregation, bad_scenarios__say_what_is_wrong) {
  const std::string rack = kOneRack;
  const std::string no_servers = rack + "transport: atp\njobs: [{size: 1MB}]\n";
  EXPECT_NE(error_of(no_servers).find("needs 'servers'"), std::string::npos);
  const std::string with_scheme =
      rack + "transport: atp\njobs: [{size: 1MB, scheme: ring, servers: [host0]}]\n";
  EXPECT_NE(error_of(with_scheme).find("neither 'scheme' nor 'scatter'"), std::string::npos);
  const std::string served = rack + "transport: switchml\njobs: [{size: 1MB, servers: [host0]}]\n";
  EXPECT_NE(error_of(served).find("no 'servers'"), std::string::npos);
  const std::string unaggregated =
      rack + "transport: dctcp\njobs: [{size: 1MB, scheme: ring, servers: [host0]}]\n";
  EXPECT_NE(error_of(unaggregated).find("'servers' is for jobs whose"), std::string::npos);
  const std::string flow = rack + "transport: atp\nflows: [{from: host0, to: host1, size: 1MB}]\n";
  EXPECT_NE(error_of(flow).find("single flows"), std::string::npos);
  const std::string large =
      one_rack("{kind: switchml, pool: 4096}", "1MB");  // needs 8192 of 4096 slots
  EXPECT_NE(error_of(large).find("slots"), std::string::npos) << error_of(large);
  const std::string small = one_rack("{kind: switchml, elements: 128}", "1MB");
  EXPECT_NE(error_of(small).find("128 elements in a packet, 64 in a switch's slot"),
            std::string::npos)
      << error_of(small);
  const std::string alone = rack + "transport: switchml\njobs: [{size: 1MB, hosts: [host0]}]\n";
  EXPECT_NE(error_of(alone).find("needs two hosts"), std::string::npos) << error_of(alone);
  const std::string parts =
      rack + "transport: atp\njobs: [{size: 1MB, servers: [host0], partition: 1kB}]\n";
  EXPECT_NE(error_of(parts).find("'partition' means nothing"), std::string::npos);
  const std::string limit = rack + "transport: switchml\njobs: [{size: 1MB, slot_limit: 1}]\n";
  EXPECT_NE(error_of(limit).find("'slot_limit' means nothing"), std::string::npos);
  const std::string racks =
      "topology: leaf-spine:racks=2,hosts=2,spines=1\ntransport: switchml\naggregation: {slots: "
      "4096}\njobs: [{size: 1MB}]\n";
  EXPECT_NE(error_of(racks).find("one switch"), std::string::npos);
  const std::string unknown =
      "topology: single-switch\ntransport: atp\naggregation: {slots: 16, "
      "switches: [host0]}\njobs: [{size: 1MB, servers: [host0]}]\n";
  EXPECT_NE(error_of(unknown).find("'host0' is not a switch"), std::string::npos);
}

// A random network with random jobs and faults. All faults end, so that every job can finish.
std::string random_scenario(std::uint64_t seed) {
  Prng prng(seed);
  const auto pick = [&](std::initializer_list<const char*> choices) {
    return *(choices.begin() + prng.below(choices.size()));
  };
  const std::uint64_t racks = 1 + prng.below(4);
  // Without congestion control, windows beyond the buffers lose the same packets again and again.
  const bool controlled = prng.chance(0.7);
  std::string text = fmt::format(
      "topology: leaf-spine:racks={},hosts=4,spines=2,host=40G,uplink={},delay=1us\n"
      "transport: {{kind: atp, window: {}, congestion_control: '{}', multicast: '{}', dupacks: {}, "
      "iw: {}, forwarding: {}}}\n"
      "network: {{framing: 24B, port_buffer: {}, mark_above: 20kB, balancing: {}}}\n"
      "aggregation: {{slots: {}, hash: {}, second_level_resends: {}{}}}\nseed: {}\njobs:\n",
      racks, pick({"20G", "40G", "100G"}), pick({"16", "256", "1024"}), controlled ? "on" : "off",
      pick({"on", "off"}), pick({"0", "3"}), pick({"4", "50"}), pick({"0", "0", "0.3"}),
      controlled ? pick({"20kB", "60kB", "1MB"}) : "4MB", pick({"flow-hash", "per-packet"}),
      pick({"8", "100", "4096"}), pick({"job", "sequence"}), pick({"take", "pass"}),
      prng.chance(0.3) ? ", switches: [leaf0]" : "", seed);
  for (std::uint64_t job = 0; job < 2; ++job) {
    text += "  - {size: " + std::to_string(4 + prng.below(60'000)) + "B, iterations: 2, hosts: [";
    for (std::uint64_t r = 0; r < racks; ++r) {
      if (r > 0 && prng.chance(0.2)) continue;
      text += fmt::format("rack{0}-host{1}, rack{0}-host{2}, ", r, job, job + 1);
    }
    text += fmt::format("], servers: [rack{}-host3{}]}}\n", prng.below(racks),
                        prng.chance(0.3) ? ", rack0-host0" : "");
  }
  text += "faults:\n";
  for (int i = 0; i < 6; ++i) {
    const std::uint64_t at = prng.below(300);
    const std::uint64_t rack = prng.below(racks);
    const std::string link = prng.chance(0.5)
                                 ? fmt::format("[rack{}-host{}, leaf{}]", rack, prng.below(4), rack)
                                 : fmt::format("[leaf{}, spine{}]", rack, prng.below(2));
    switch (prng.below(4)) {
      case 0:
        text += fmt::format("  - {{at: {}us, link: {}, loss: 0.05}}\n", at, link);
        break;
      case 1:
        text += fmt::format(
            "  - {{at: {0}us, link: {1}, up: no}}\n  - {{at: {2}us, link: {1}, up: yes}}\n", at,
            link, at + 100);
        break;
      case 2:
        text += fmt::format("  - {{at: {}us, restart: leaf{}}}\n", at, rack);
        break;
      default:
        text += fmt::format(
            "  - {{at: {0}us, pause: rack{1}-host1}}\n  - {{at: {2}us, resume: rack{1}-host1}}\n",
            at, rack, at + 200);
    }
  }
  return text;
}

std::string outcome_of(std::uint64_t seed) {
  const ScenarioResult result = result_of(scenario_of(random_scenario(seed)));
  EXPECT_EQ(result.failures, std::vector<std::string>{});
  std::ostringstream out;
  for (const FlowResult& flow : result.flows) {
    out << flow.id.value() << ' ' << flow.end.since_start().ps() << '\n';
  }
  for (const JobResult& job : result.jobs) EXPECT_TRUE(job.done);
  return out.str();
}

TEST(AggregationProperty, run__random_faults__every_sum_is_exact_and_every_job_ends) {
  const char* const more = std::getenv("THALWEG_SCHEDULES");
  const std::uint64_t runs = more != nullptr ? std::strtoull(more, nullptr, 10) : 150;
  const char* const first = std::getenv("THALWEG_FIRST_SEED");
  const std::uint64_t base = first != nullptr ? std::strtoull(first, nullptr, 10) : 1;
  for (std::uint64_t seed = base; seed < base + runs; ++seed) {
    SCOPED_TRACE("replay: THALWEG_SCHEDULES=1 THALWEG_FIRST_SEED=" + std::to_string(seed) + "\n" +
                 random_scenario(seed));
    outcome_of(seed);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(AggregationProperty, run__same_seed__gives_the_same_result) {
  for (std::uint64_t seed = 500; seed < 505; ++seed) {
    SCOPED_TRACE(seed);
    EXPECT_EQ(outcome_of(seed), outcome_of(seed));
  }
}

}  // namespace
}  // namespace thalweg::sim::fixture
