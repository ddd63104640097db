// Strategies of synchronization as simulated jobs: who waits for whom.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sim/scenario_fixture.h"

namespace thalweg {
namespace {

using testing_sim::result_of;
using testing_sim::scenario_of;

// Two racks of two, of which one worker computes four times slower.
std::vector<IterationResult> train(std::string_view scheme, int iterations) {
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

// The iterations that a worker began before all had done the one `behind` it and one more.
int begun_early(const std::vector<IterationResult>& iterations, std::size_t behind) {
  int early = 0;
  for (std::size_t t = behind + 1; t < iterations.size(); ++t) {
    early += iterations[t].start < iterations[t - behind - 1].end ? 1 : 0;
  }
  return early;
}

TEST(Strategies, ssp__nobody_is_further_ahead_than_the_staleness) {
  const auto stale = train("ssp:servers=2,staleness=2", 12);
  EXPECT_EQ(begun_early(stale, 2), 0);
  EXPECT_GT(begun_early(stale, 1), 0);
  EXPECT_EQ(begun_early(train("ssp:staleness=0", 6), 0), 0);
}

TEST(Strategies, asp__the_others_do_not_wait_for_the_slow_one) {
  EXPECT_GT(begun_early(train("asp:servers=2", 12), 2), 0);
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
                                         "test", testing_sim::loaders(), {});
    return made.ok() ? std::string("no error") : made.error().message();
  };
  EXPECT_NE(error_of("ssp:staleness=-1").find("staleness"), std::string::npos);
  EXPECT_NE(error_of("asp:staleness=1").find("staleness"), std::string::npos);
  EXPECT_NE(error_of("asp:servers=5").find("servers"), std::string::npos);
  EXPECT_NE(error_of("local-sgd:every=0").find("every"), std::string::npos);
  EXPECT_NE(error_of("aspen").find("aspen"), std::string::npos);
}

}  // namespace
}  // namespace thalweg
