// Single flows over DLCP in the simulator: timing, loss within the bound, control messages.
#include <gtest/gtest.h>

#include "fabric_fixture.h"
#include "sim/dlcp/dlcp_transport.h"

namespace thalweg::sim::fixture {
namespace {

std::unique_ptr<TransportFactory> dlcp(const KeyValues& given = {}) {
  auto made = make_transport("dlcp", given);
  EXPECT_TRUE(made.ok()) << made.error().message();
  return std::move(made).value();
}

NetworkOptions queues() {
  NetworkOptions options;
  options.queues.discipline = QueueOptions::Discipline::kStrictPriority;
  options.queues.port_buffer = Bytes(512'000);
  options.balancing = LoadBalancing::kPerPacket;
  return options;
}

constexpr std::string_view kFabric = "leaf-spine:racks=2,hosts=4,spines=2,host=10G,uplink=20G";

// The pacer sends at the rate of the link, so an exact flow should be only a little slower than its
// oracle, which knows neither pacers nor two paths of different length.
TEST(DlcpFlow, start_flow__alone__is_close_to_its_oracle) {
  const topology::Topology network = topology(kFabric);
  const auto exact = dlcp({{"bound", "0"}});
  for (const std::uint64_t bytes : {1U, 4U, 1436U, 1437U, 100'000U, 10'000'000U}) {
    SCOPED_TRACE(bytes);
    Bench bench(network, queues());
    const FlowId flow = bench.start(0, 5, bytes, *exact);
    bench.run_to_the_end();
    const FlowResult& result = bench.result(flow);
    EXPECT_EQ(result.arrived, 1.0);
    EXPECT_EQ(result.counters.retransmissions, 0U);
    EXPECT_LE(result.completion_time().s(), result.oracle.s() * 1.02 + 1e-9);
  }
}

TEST(DlcpFlow, start_flow__with_a_bound__ends_before_all_has_arrived) {
  const topology::Topology network = topology(kFabric);
  const auto lossy = dlcp({{"bound", "0.1"}});
  Bench bench(network, queues());
  const FlowId flow = bench.start(0, 5, 14'360'000, *lossy);
  bench.run_to_the_end();
  const FlowResult& result = bench.result(flow);
  EXPECT_DOUBLE_EQ(result.arrived, 0.9);
  EXPECT_LE(result.completion_time().s(), result.oracle.s() * 1.02);
}

TEST(DlcpFlow, start_flow__pull__has_its_own_bound) {
  const topology::Topology network = topology(kFabric);
  const auto lossy = dlcp({{"bound", "0.1"}, {"pull_bound", "0.02"}});
  Bench bench(network, queues());
  const FlowId flow = bench.network.start_flow({.source = Rank(0),
                                                .target = Rank(5),
                                                .bytes = 14'360'000,
                                                .transport = lossy.get(),
                                                .pull = true});
  bench.run_to_the_end();
  EXPECT_DOUBLE_EQ(bench.result(flow).arrived, 0.98);
}

TEST(DlcpFlow, start_flow__not_in_advance__takes_half_a_round_trip_more) {
  const topology::Topology network = topology("single-switch:hosts=2,host=10G,delay=10us");
  const auto ready = dlcp({{"bound", "0"}});
  const auto asking = dlcp({{"bound", "0"}, {"in_advance", "off"}});
  Bench bench(network, queues());
  const FlowId first = bench.start(0, 1, 100'000, *ready);
  bench.run_to_the_end();
  const FlowId second = bench.start(0, 1, 100'000, *asking);
  bench.run_to_the_end();
  const Duration more =
      bench.result(second).completion_time() - bench.result(first).completion_time();
  EXPECT_GE(more, Duration::microseconds(20));
  EXPECT_LE(more, Duration::microseconds(21));
}

// Lost data within the bound costs nothing, and no flow waits for a timeout.
TEST(DlcpFlow, start_flow__loss_below_the_bound__costs_no_retransmission) {
  const topology::Topology network = topology("single-switch:hosts=2,host=10G,delay=10us");
  const auto lossy = dlcp({{"bound", "0.1"}});
  Bench bench(network, queues());
  bench.network.set_loss(network.arcs_from(network.host(Rank(0)))[0], 0.02);
  const FlowId flow = bench.start(0, 1, 14'360'000, *lossy);
  bench.run_to_the_end();
  EXPECT_EQ(bench.result(flow).counters.retransmissions, 0U);
  EXPECT_GE(bench.result(flow).arrived, 0.9);
}

TEST(DlcpFlow, start_flow__exact_and_loss__sends_again_what_is_missing) {
  const topology::Topology network = topology("single-switch:hosts=2,host=10G,delay=10us");
  const auto exact = dlcp({{"bound", "0"}});
  Bench bench(network, queues());
  bench.network.set_loss(network.arcs_from(network.host(Rank(0)))[0], 0.02);
  const FlowId flow = bench.start(0, 1, 14'360'000, *exact);
  bench.run_to_the_end();
  const FlowResult& result = bench.result(flow);
  EXPECT_EQ(result.arrived, 1.0);
  EXPECT_GT(result.counters.retransmissions, 100U);
  EXPECT_LT(result.counters.retransmissions, 400U);
}

// Flows of one host take turns on its link, so that nothing piles up at its port.
TEST(DlcpFlow, start_flow__many_of_one_host__wait_with_their_endpoints) {
  const topology::Topology network = topology("single-switch:hosts=9,host=10G");
  const auto exact = dlcp({{"bound", "0"}});
  Bench bench(network, queues());
  for (int to = 1; to < 9; ++to) bench.start(0, to, 1'000'000, *exact);
  bench.run_to_the_end();
  EXPECT_LE(bench.network.counters().peak_host_backlog, 16'000U);
  const double all = 8 * 1'000'000.0 / 1436 * 1500 * 8 / 10e9;
  for (const FlowResult& result : bench.results) {
    EXPECT_GT(result.completion_time().s(), all * 0.98);
    EXPECT_LT(result.completion_time().s(), all * 1.02);
  }
}

// The small gradients of an incast are dropped before the important ones.
TEST(DlcpFlow, start_flow__incast_and_selective_dropping__spares_important_segments) {
  const topology::Topology network = topology("single-switch:hosts=9,host=10G");
  const auto lossy = dlcp({{"bound", "0.3"}});
  NetworkOptions options = queues();
  options.queues.port_buffer = Bytes(4'000'000);
  options.queues.selective_threshold = Bytes(50'000);
  Bench bench(network, options);
  for (int from = 1; from < 9; ++from) bench.start(from, 0, 300'000, *lossy);
  bench.run_to_the_end();
  EXPECT_GT(bench.network.counters().drops_selective, 0U);
  EXPECT_EQ(bench.network.counters().drops_full, 0U);
  EXPECT_GT(bench.network.counters().marks, 0U);
}

TEST(DlcpFlow, progress_of__half_way__counts_what_arrived) {
  const topology::Topology network = topology("single-switch:hosts=2,host=10G");
  const auto exact = dlcp({{"bound", "0"}});
  Bench bench(network, queues());
  const FlowId flow = bench.start(0, 1, 10'000'000, *exact);
  bench.network.run(Time::at(Duration::milliseconds(4)));
  const auto progress = bench.network.progress_of(flow);
  ASSERT_TRUE(progress.has_value());
  EXPECT_GT(progress->received, 4'500'000U);
  EXPECT_LT(progress->received, 5'000'000U);
  bench.run_to_the_end();
  EXPECT_FALSE(bench.network.progress_of(flow).has_value());
}

TEST(DlcpTransport, make_transport__bad_values__say_what_is_allowed) {
  const auto error = [](const KeyValues& given) {
    const auto made = make_transport("dlcp", given);
    return made.ok() ? std::string() : made.error().message();
  };
  EXPECT_NE(error({{"bound", "1"}}).find("bound"), std::string::npos);
  EXPECT_NE(error({{"bound", "1"}}).find("0 to 0.999"), std::string::npos);
  EXPECT_NE(error({{"delta", "0.5"}}).find("1 to 1000"), std::string::npos);
  EXPECT_NE(error({{"rto_min", "10ms"}}).find("no parameter 'rto_min'"), std::string::npos);
  EXPECT_NE(error({{"grace_initial", "1s"}}).find("grace.most"), std::string::npos);
  EXPECT_EQ(error({{"grace_initial", "10ms"}, {"rate", "10G"}}), "");
}

}  // namespace
}  // namespace thalweg::sim::fixture
