// DLCP over four paths, one of which is bad. Hosts that learn from reports lose next to nothing;
// hosts that deal evenly, and switches that spray, do not notice.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "scenario_fixture.h"

namespace thalweg::sim::fixture {
namespace {

constexpr const char* kFourPaths = R"(
variables: {learn: "on"}
topology: leaf-spine:racks=2,hosts=4,spines=4,host=10G,uplink=20G
transport: {kind: dlcp, learn_paths: "${learn}"}
network: {discipline: strict-priority, port_buffer: 1MB, control_reserve: 64kB, balancing: label}
until: 10s
flows:
  - {from: rack0-host0, to: rack1-host0, size: 20MB}
  - {from: rack0-host1, to: rack1-host1, size: 20MB}
  - {from: rack0-host2, to: rack1-host2, size: 20MB}
  - {from: rack0-host3, to: rack1-host3, size: 20MB}
faults:
)";

// The completion time of the slowest flow, divided by the time that the hosts' own links need for
// what must arrive.
double slowest(const std::string& fault, const Settings& settings) {
  const std::string text =
      kFourPaths + fmt::format("  - {{at: 1us, link: [leaf0, spine0], {}}}\n", fault);
  const ScenarioResult result = result_of(scenario_of(text, settings));
  EXPECT_EQ(result.flows.size(), 4U);
  double most = 0;
  for (const FlowResult& flow : result.flows) {
    most = std::max(most, flow.completion_time().s() / flow.oracle.s());
  }
  return most;
}

const Settings kLearnt = {};
const Settings kEven = {{"learn", "off"}};
const Settings kSprayed = {{"network.balancing", "per-packet"}};

TEST(DlcpPaths, no_fault__nothing_is_lost_by_learning) {
  EXPECT_LT(slowest("rate: 1", kLearnt), 1.01);
}

TEST(DlcpPaths, quarter_of_the_rate__only_learning_comes_near_the_bound) {
  EXPECT_LT(slowest("rate: 0.25", kLearnt), 1.06);
  EXPECT_GT(slowest("rate: 0.25", kEven), 1.12);
  EXPECT_GT(slowest("rate: 0.25", kSprayed), 1.12);
}

// Routing does not notice, and control messages are lost too.
TEST(DlcpPaths, link_that_loses_all__only_learning_comes_near_the_bound) {
  EXPECT_LT(slowest("loss: 1", kLearnt), 1.1);
  EXPECT_GT(slowest("loss: 1", kEven), 1.25);
  EXPECT_GT(slowest("loss: 1", kSprayed), 1.25);
}

// Routing avoids the link: three paths are left, with enough capacity for all.
TEST(DlcpPaths, link_that_is_down__labels_name_the_paths_that_are_left) {
  EXPECT_LT(slowest("up: no", kLearnt), 1.02);
}

}  // namespace
}  // namespace thalweg::sim::fixture
