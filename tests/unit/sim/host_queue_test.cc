// Queues of sockets at hosts (socket_queue), and times that count from when a message was handed
// over.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "scenario_fixture.h"
#include "sim/hosts/connections.h"
#include "sim/scenario/result_json.h"
#include "sim/tcp/transports.h"
#include "topology/format/load.h"

namespace thalweg::sim {
namespace {

using fixture::loaders;
using fixture::result_of;
using fixture::scenario_of;

// Three flows leave one host, whose link is the slowest of their ways.
ScenarioResult three_flows(std::string_view transport, std::string_view network) {
  return result_of(scenario_of(fmt::format(R"(topology: single-switch:hosts=4,host=10G
transport: {}
network: {{{}}}
flows:
  - {{from: host0, to: host1, size: 3MB}}
  - {{from: host0, to: host2, size: 3MB}}
  - {{from: host0, to: host3, size: 3MB}}
)",
                                           transport, network)));
}

TEST(HostQueue, socket_queue__limits_each_socket_and_keeps_the_link_busy) {
  for (const std::string_view transport : {"newreno", "dctcp", "{kind: dlcp, bound: 0}"}) {
    const ScenarioResult result = three_flows(transport, "socket_queue: 40kB");
    ASSERT_EQ(result.flows.size(), 3U) << transport;
    // A socket stops once 40 kB of it wait, so it is over by less than a packet.
    EXPECT_LE(result.counters.peak_host_backlog, 3U * (40'000U + 1'500U)) << transport;
    EXPECT_GT(result.counters.peak_host_backlog, 2U * 40'000U) << transport;
    // 9 MB take 7.2 ms, and headers 5 % more.
    EXPECT_LT(result.end.since_start(), Duration::microseconds(7'800)) << transport;
  }
}

TEST(HostQueue, no_socket_queue__a_window_waits_at_the_host) {
  EXPECT_GT(three_flows("newreno", "socket_queue: 0B").counters.peak_host_backlog, 130'000U);
}

TEST(HostQueue, socket_queue_of_pfabric__the_same_rule) {
  const ScenarioResult result = three_flows("{kind: pfabric, rate: 10G, rtt: 1ms}",
                                            "discipline: pfabric, socket_queue: 40kB");
  EXPECT_LE(result.counters.peak_host_backlog, 3U * (40'000U + 1'500U));
  EXPECT_LT(result.end.since_start(), Duration::microseconds(7'800));
}

TEST(HostQueue, socket_queue_and_a_host_that_is_paused_and_unplugged__counts_stay_right) {
  for (const std::string_view transport : {"newreno", "{kind: dlcp, bound: 0}"}) {
    const ScenarioResult result = result_of(scenario_of(fmt::format(
        R"(topology: single-switch:hosts=4,host=10G
transport: {}
network: {{socket_queue: 40kB}}
flows:
  - {{from: host0, to: host1, size: 3MB}}
  - {{from: host0, to: host2, size: 3MB}}
faults:
  - {{at: 1ms, pause: host0}}
  - {{at: 2ms, resume: host0}}
  - {{at: 3ms, link: [host0, switch0], up: no}}
  - {{at: 4ms, link: [host0, switch0], up: yes}}
)",
        transport)));
    EXPECT_EQ(result.flows.size(), 2U) << transport;
    EXPECT_LE(result.counters.peak_host_backlog, 2U * (40'000U + 1'500U)) << transport;
  }
}

TEST(HostQueue, both_kinds_of_queue__refused) {
  const auto scenario = scenario_from_yaml(R"(topology: single-switch:hosts=2,host=10G
transport: newreno
network: {host_queue: 40kB, socket_queue: 40kB}
flows:
  - {from: host0, to: host1, size: 3MB}
)",
                                           "both.yaml", loaders());
  ASSERT_FALSE(scenario.ok());
  EXPECT_NE(scenario.error().message().find("give one of them"), std::string::npos)
      << scenario.error().message();
}

TEST(Connections, completion__counts_from_when_the_message_was_handed_over) {
  const topology::Topology topology =
      topology::topology_from_shorthand("single-switch:hosts=2,host=10G").value();
  const auto transport = make_newreno({}).value();
  Network network(topology, {});
  std::vector<FlowResult> flows;
  network.on_flow_done([&](const FlowResult& flow) { flows.push_back(flow); });
  Connections connections(network, {.transport = transport.get()});
  for (int i = 0; i < 2; ++i) connections.send(Rank(0), Rank(1), Bytes(1'000'000), 0, [] {});
  EXPECT_TRUE(network.run(Time::at(Duration::milliseconds(1'000))));
  ASSERT_EQ(flows.size(), 2U);
  EXPECT_EQ(flows[0].asked, flows[0].start);
  // The second waited for the first, and its time says so.
  EXPECT_EQ(flows[1].asked, flows[0].asked);
  // It began when the sender learnt that the first was there: the delays of both links later.
  const Duration notice = topology.links()[0].spec.delay + topology.links()[1].spec.delay;
  EXPECT_GT(notice, Duration());
  EXPECT_EQ(flows[1].start, flows[0].end + notice);
  EXPECT_GT(flows[1].completion_time().s(), 1.8 * flows[0].completion_time().s());
}

TEST(ScenarioResult, timeouts_and_retransmissions__are_in_the_result) {
  const Scenario scenario = scenario_of(R"(topology: single-switch:hosts=2,host=10G
transport: {kind: newreno, rto_min: 5ms}
flows:
  - {from: host0, to: host1, size: 3MB}
faults:
  - {at: 1ms, link: [host0, switch0], up: no}
  - {at: 2ms, link: [host0, switch0], up: yes}
)");
  const Json result = to_json(result_of(scenario), scenario);
  EXPECT_GE(result["timeouts"].get<int>(), 1);
  EXPECT_GE(result["retransmissions"].get<int>(), 1);
}

}  // namespace
}  // namespace thalweg::sim
