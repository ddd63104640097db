// Synchronization strategies as simulated jobs: which workers wait for which.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "sim/scenario_fixture.h"

namespace thalweg::sim {
namespace {

using fixture::result_of;
using fixture::scenario_of;

// Two racks of two; one worker computes four times slower.
std::vector<IterationResult> train_by(std::string_view scheme, int iterations) {
  const ScenarioResult result = result_of(scenario_of(fmt::format(
      R"(topology: leaf-spine:racks=2,hosts=2,spines=1,host=10G,uplink=10G
transport: {{kind: dctcp, rto_min: 5ms}}
network: {{port_buffer: 2MB, mark_above: 100kB}}
jobs:
  - {{model: tiny, scheme: "{}", iterations: {}, slowdown: {{rack1-host1: 4}}}}
)",
      scheme, iterations)));
  EXPECT_TRUE(result.finished) << scheme;
  return result.jobs[0].iterations;
}

// How many iterations began before all workers had finished the one `behind` + 1 iterations
// earlier.
int begun_early(const std::vector<IterationResult>& iterations, std::size_t behind) {
  int early = 0;
  for (std::size_t t = behind + 1; t < iterations.size(); ++t) {
    early += iterations[t].start < iterations[t - behind - 1].end ? 1 : 0;
  }
  return early;
}

TEST(Strategies, ssp__nobody_is_further_ahead_than_the_staleness) {
  const auto stale = train_by("ssp:servers=2,staleness=2", 12);
  EXPECT_EQ(begun_early(stale, 2), 0);
  EXPECT_GT(begun_early(stale, 1), 0);
  EXPECT_EQ(begun_early(train_by("ssp:staleness=0", 6), 0), 0);
}

TEST(Strategies, asp__the_others_do_not_wait_for_the_slow_one) {
  EXPECT_GT(begun_early(train_by("asp:servers=2", 12), 2), 0);
}

constexpr std::string_view kSums = "group_transport: {kind: atp, elements: 256}, ";

// Two racks of eight, whose switches can sum.
std::string of_racks(std::string_view scheme, std::string_view more) {
  return fmt::format(
      R"(topology: leaf-spine:racks=2,hosts=8,spines=1,host=20G,uplink=20G,delay=2us
transport: {{kind: dctcp, mss: 8960B, rto_min: 5ms}}
network: {{port_buffer: 2MB, mark_above: 300kB, host_queue: 128kB}}
aggregation: {{slots: 8192, elements: 256}}
jobs:
  - {{size: 4MB, scheme: "{}", {}overlap: none, partition: 1MB, iterations: 8}}
)",
      scheme, more);
}

TEST(Strategies, ds_sync__groups_within_racks_are_summed_in_switches) {
  const ScenarioResult ring = result_of(scenario_of(of_racks("ds-sync", "")));
  const ScenarioResult sums = result_of(scenario_of(of_racks("ds-sync:group=atp", kSums)));
  EXPECT_FALSE(ring.jobs[0].aggregation);
  // In each iteration two groups of seven: one packet of 256 floats from each member, and one sum.
  constexpr std::uint64_t kPackets = 8 * 2 * ((4'000'000 / 4 + 255) / 256);
  EXPECT_EQ(sums.jobs[0].aggregation->completed, kPackets);
  EXPECT_EQ(sums.jobs[0].aggregation->at_servers, kPackets);
  // A member sends 8/7 of its tensor, plus headers, while in a ring it sends 12/7.
  EXPECT_LT(sums.jobs[0].iterations.back().end.since_start().ms(),
            0.8 * ring.jobs[0].iterations.back().end.since_start().ms());
}

TEST(Strategies, sums_in_switches__need_a_transport_and_large_groups) {
  const auto refusal = [](std::string_view scheme, std::string_view more) {
    const auto made = scenario_from_yaml(of_racks(scheme, more), "test", fixture::loaders(), {});
    return made.ok() ? "none" : made.error().message();
  };
  EXPECT_NE(refusal("ds-sync:group=atp", "").find("needs a 'group_transport'"), std::string::npos);
  EXPECT_NE(refusal("ds-sync", kSums).find("no group of 'ds-sync' is summed"), std::string::npos);
  EXPECT_NE(refusal("ds-sync:group=atp", "group_transport: {kind: dctcp}, ")
                .find("'group_transport' must be of the kind atp"),
            std::string::npos);
  // The groups across racks are the pairs of the representatives.
  EXPECT_NE(refusal("ds-sync:across=atp", kSums).find("no group"), std::string::npos);
}

TEST(Strategies, local_sgd__exchanges_each_fourth_time) {
  const auto exchange_ms = [](std::string_view scheme, int iterations) {
    const ScenarioResult result = result_of(scenario_of(fmt::format(
        R"(topology: single-switch:hosts=4,host=10G
transport: newreno
jobs:
  - {{size: 8MB, scheme: "{}", iterations: {}}}
)",
        scheme, iterations)));
    EXPECT_TRUE(result.finished) << scheme;
    return (result.jobs[0].iterations.back().end - result.jobs[0].iterations.front().start).ms();
  };
  EXPECT_NEAR(exchange_ms("local-sgd:every=4,group=ring", 8) / exchange_ms("ring", 2), 1, 0.1);
}

TEST(Strategies, bad_parameters__are_named) {
  const auto error_of = [](std::string_view scheme) {
    const auto made = scenario_from_yaml(fmt::format(R"(topology: single-switch:hosts=4,host=10G
transport: newreno
jobs:
  - {{size: 8MB, scheme: "{}"}}
)",
                                                     scheme),
                                         "test", fixture::loaders(), {});
    return made.ok() ? std::string("no error") : made.error().message();
  };
  EXPECT_NE(error_of("ssp:staleness=-1").find("staleness"), std::string::npos);
  EXPECT_NE(error_of("asp:staleness=1").find("staleness"), std::string::npos);
  EXPECT_NE(error_of("asp:servers=5").find("servers"), std::string::npos);
  EXPECT_NE(error_of("local-sgd:every=0").find("every"), std::string::npos);
  EXPECT_NE(error_of("aspen").find("aspen"), std::string::npos);
}

}  // namespace
}  // namespace thalweg::sim
