// Times that can be worked out with pencil and paper, exact to the picosecond.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/prng.h"
#include "fabric_fixture.h"

namespace thalweg::sim {
namespace {

using fixture::Bench;
using fixture::kFull;
using fixture::line;
using fixture::star;
using fixture::WindowOptions;
using fixture::WindowTransport;

topology::LinkSpec link(std::int64_t gbps, std::int64_t delay_ns) {
  return {Bandwidth::gbps(gbps), Duration::nanoseconds(delay_ns), Bytes(0)};
}

TEST(FabricTiming, one_packet__two_hops) {
  const topology::Topology net = star({link(100, 500), link(10, 700)});
  NetworkOptions options;
  options.framing_bytes = 38;
  Bench bench(net, options);
  const WindowTransport transport({});
  const FlowId flow = bench.start(0, 1, 1000, transport);
  bench.run_to_the_end();
  // 1000 + 40 + 38 bytes at 80 and at 800 ps per byte, plus the two delays.
  const auto expected = Duration::picoseconds(1078 * 80 + 500'000 + 1078 * 800 + 700'000);
  EXPECT_EQ(bench.result(flow).completion_time(), expected);
  EXPECT_EQ(bench.result(flow).oracle, expected);
  EXPECT_EQ(bench.network.counters().packet_hops, 4U);  // the acknowledgement's two included
  // Each hop is one event, and so is the notice of the flow's end. Time stops with the
  // acknowledgement, not with the void timer.
  EXPECT_EQ(bench.network.counters().events, 5U);
  const std::int64_t ack_ps = 78 * 880 + 1'200'000;
  EXPECT_EQ(bench.network.now().since_start(), expected + Duration::picoseconds(ack_ps));
}

TEST(FabricTiming, one_flow__four_hops_of_equal_rate) {
  const topology::Topology net =
      fixture::topology("leaf-spine:racks=2,hosts=1,spines=1,host=100G,uplink=100G,delay=1us");
  Bench bench(net, {});
  const WindowTransport transport({});
  const FlowId flow = bench.start(0, 1, 10 * kFull, transport);
  bench.run_to_the_end();
  // Ten packets of 1500 bytes, 120 ns each, and three more stages for the last one.
  EXPECT_EQ(bench.result(flow).completion_time(), Duration::nanoseconds(13 * 120 + 4 * 1000));
}

// Packet by packet, link by link: a packet is sent when the link is free and the packet is there.
std::int64_t pipeline_ps(const std::vector<topology::LinkSpec>& links, std::uint64_t bytes,
                         std::uint32_t segment, std::uint32_t overhead) {
  std::vector<std::int64_t> free_at(links.size(), 0);
  std::int64_t arrival = 0;
  for (std::uint64_t at = 0; at < bytes; at += segment) {
    const std::uint64_t payload = std::min<std::uint64_t>(segment, bytes - at);
    arrival = 0;
    for (std::size_t i = 0; i < links.size(); ++i) {
      const Bytes wire(static_cast<std::int64_t>(payload + overhead));
      free_at[i] = std::max(arrival, free_at[i]) + links[i].rate.transmission_time(wire).ps();
      arrival = free_at[i] + links[i].delay.ps();
    }
  }
  return arrival;
}

// Random lines of one to six links of random rates, with whole picoseconds per byte or not.
TEST(FabricTiming, one_flow__random_lines_match_the_pipeline_and_the_oracle) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Prng prng(seed);
    std::vector<topology::LinkSpec> links(1 + prng.below(6));
    for (topology::LinkSpec& spec : links) {
      const std::int64_t odd = static_cast<std::int64_t>(prng.below(99'999'999'999));
      spec.rate = prng.chance(0.5) ? Bandwidth::gbps(10) : Bandwidth::bits_per_second(1 + odd);
      spec.delay = Duration::picoseconds(static_cast<std::int64_t>(prng.below(5'000'000)));
    }
    WindowOptions window;
    window.segment = static_cast<std::uint32_t>(1 + prng.below(3000));
    window.timeout = Duration::milliseconds(50'000);
    const std::uint64_t bytes = 1 + prng.below(20'000);
    NetworkOptions options;
    options.framing_bytes = static_cast<std::uint32_t>(prng.below(50));
    const topology::Topology net = line(links);
    Bench bench(net, options);
    const WindowTransport transport(window);
    const FlowId flow = bench.start(0, 1, bytes, transport);
    bench.run_to_the_end();
    const std::int64_t expected =
        pipeline_ps(links, bytes, window.segment, window.header + options.framing_bytes);
    EXPECT_EQ(bench.result(flow).completion_time().ps(), expected);
    EXPECT_EQ(bench.result(flow).oracle.ps(), expected);
  }
}

TEST(FabricTiming, incast__as_long_as_the_bytes_take_on_the_last_link) {
  constexpr int kSenders = 40;
  constexpr int kPackets = 30;
  const topology::Topology net =
      star(std::vector<topology::LinkSpec>(kSenders + 1, link(10, 1000)));
  Bench bench(net, {});
  const WindowTransport transport({});
  for (int sender = 1; sender <= kSenders; ++sender) {
    bench.start(sender, 0, kPackets * kFull, transport);
  }
  bench.run_to_the_end();
  ASSERT_EQ(bench.results.size(), static_cast<std::size_t>(kSenders));
  // N·S/B on the shared link, after one packet on the first.
  const auto expected = Duration::nanoseconds(1200 * kSenders * kPackets + 1200 + 2 * 1000);
  EXPECT_EQ(bench.results.back().end.since_start(), expected);
}

TEST(FabricTiming, window__one_packet_a_round_trip) {
  const topology::Topology net = star({link(10, 1000), link(10, 1000)});
  WindowOptions window;
  window.window_bytes = 1;
  Bench bench(net, {});
  const WindowTransport transport(window);
  const FlowId flow = bench.start(0, 1, 5 * kFull, transport);
  bench.run_to_the_end();
  constexpr std::int64_t kThere = 2 * 1200 + 2 * 1000;
  constexpr std::int64_t kBack = 2 * 32 + 2 * 1000;
  EXPECT_EQ(bench.result(flow).completion_time(), Duration::nanoseconds(5 * kThere + 4 * kBack));
}

}  // namespace
}  // namespace thalweg::sim
