// DLCP-R in the simulator: one flow alone, many to one, order at a sender, parameters.
#include <gtest/gtest.h>

#include <algorithm>

#include "fabric_fixture.h"
#include "sim/dlcp/dlcp_transport.h"

namespace thalweg::sim::fixture {
namespace {

std::unique_ptr<TransportFactory> granting(KeyValues given = {}) {
  given.emplace("grants", "on");
  given.emplace("order", "shortest");
  given.emplace("round_trip", "50us");
  auto made = make_transport("dlcp", given);
  EXPECT_TRUE(made.ok()) << made.error().message();
  return std::move(made).value();
}

NetworkOptions short_buffers() {
  NetworkOptions options;
  options.queues.discipline = QueueOptions::Discipline::kStrictPriority;
  options.queues.port_buffer = Bytes(60'000);
  return options;
}

constexpr std::string_view kStar = "single-switch:hosts=17,host=10G,delay=10us";

TEST(DlcpGrantsSim, start_flow__alone__loses_at_most_two_round_trips) {
  const topology::Topology network = topology(kStar);
  const auto exact = granting({{"bound", "0"}});
  for (const std::uint64_t bytes : {1U, 1436U, 100'000U, 10'000'000U}) {
    SCOPED_TRACE(bytes);
    Bench bench(network, short_buffers());
    const FlowId flow = bench.start(0, 5, bytes, *exact);
    bench.run_to_the_end();
    EXPECT_EQ(bench.result(flow).arrived, 1.0);
    EXPECT_LE(bench.result(flow).completion_time().s(),
              bench.result(flow).oracle.s() * 1.02 + 100e-6);
  }
}

// 16 hosts send 1 MB each to one, with and without grants.
TEST(DlcpGrantsSim, start_flow__many_to_one__almost_nothing_is_sent_in_vain) {
  const topology::Topology network = topology(kStar);
  const auto run = [&](const TransportFactory& transport) {
    Bench bench(network, short_buffers());
    for (int i = 1; i <= 16; ++i) bench.start(i, 0, 1'000'000, transport);
    bench.run_to_the_end();
    EXPECT_EQ(bench.results.size(), 16U);
    std::uint64_t segments = 0;
    Time last;
    for (const FlowResult& result : bench.results) {
      segments += result.counters.segments;
      last = std::max(last, result.end);
    }
    return std::pair(segments, last);
  };
  const auto literal = make_transport("dlcp", {{"bound", "0.1"}});
  const auto [literal_segments, literal_end] = run(**literal);
  const auto [segments, end] = run(*granting({{"bound", "0.1"}}));
  const std::uint64_t needed = 16 * 697 * 9 / 10;
  EXPECT_LT(segments, needed * 11 / 10);
  EXPECT_GT(literal_segments, needed * 14 / 10);
  EXPECT_LT(end, literal_end);
  EXPECT_LT(end.since_start().s(), 16e6 * 0.9 * 8 / 10e9 * 1.15);
}

TEST(DlcpGrantsSim, start_flow__one_to_many__the_shortest_ends_first) {
  const topology::Topology network = topology(kStar);
  const auto transport = granting({{"bound", "0"}});
  Bench bench(network, short_buffers());
  for (int i = 1; i <= 8; ++i) {
    bench.start(0, i, static_cast<std::uint64_t>(9 - i) * 300'000, *transport);
  }
  bench.run_to_the_end();
  std::vector<std::uint64_t> sizes;
  for (const FlowResult& result : bench.results) sizes.push_back(result.spec.bytes);
  EXPECT_TRUE(std::ranges::is_sorted(sizes));
}

TEST(DlcpGrantsSim, make_transport__errors_name_the_key) {
  const auto error = [](const KeyValues& given) {
    const auto made = make_transport("dlcp", given);
    return made.ok() ? std::string() : made.error().message();
  };
  EXPECT_EQ(error({{"grants", "on"}, {"order", "urgent"}, {"ageing", "0.1"}}), "");
  EXPECT_NE(error({{"order", "first"}}).find("order"), std::string::npos);
  EXPECT_NE(error({{"overcommit", "0"}}).find("overcommit"), std::string::npos);
  EXPECT_NE(error({{"quantum", "0"}}).find("quantum"), std::string::npos);
}

}  // namespace
}  // namespace thalweg::sim::fixture
