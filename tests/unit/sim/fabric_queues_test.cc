// The ports of switches (marks, drops, order), and which path packets take.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "fabric_fixture.h"

namespace thalweg::sim {
namespace {

using fixture::Bench;
using fixture::kFull;
using fixture::kWire;
using fixture::link;
using fixture::star;
using fixture::WindowOptions;
using fixture::WindowTransport;

// A fast sender and a slow receiver, so that a burst of packets piles up at the switch.
struct Pile {
  static constexpr std::int64_t kInNs = 120;    // a packet at 100 Gb/s
  static constexpr std::int64_t kOutNs = 1200;  // at 10 Gb/s

  // Bytes that wait when packet i arrives (i from 0), if all packets before it were accepted.
  static std::int64_t waiting_at(std::int64_t i) {
    // Packet j starts at the first arrival plus j·kOutNs.
    const std::int64_t started = std::min(i, i * kInNs / kOutNs + 1);
    return (i - started) * kWire;
  }
  static std::uint64_t finding_more_than(std::int64_t threshold, std::int64_t packets) {
    std::uint64_t count = 0;
    for (std::int64_t i = 0; i < packets; ++i) count += waiting_at(i) > threshold ? 1U : 0U;
    return count;
  }
};

WindowOptions burst(Ecn ecn, std::uint8_t priority = 0) {
  WindowOptions options;
  options.ecn = ecn;
  options.priority = priority;
  options.timeout = Duration::milliseconds(10);
  return options;
}

TEST(FabricQueues, marks__exactly_those_that_find_more_than_k) {
  constexpr std::int64_t kPackets = 100;
  for (const std::int64_t threshold : {1L, 10 * kWire - 1, 10 * kWire, 65 * kWire, 95 * kWire}) {
    SCOPED_TRACE(threshold);
    NetworkOptions options;
    options.queues.mark_above = Bytes(threshold);
    const topology::Topology net = star({link(100), link(10)});
    Bench bench(net, options);
    const WindowTransport transport(burst(Ecn::kCapable));
    const FlowId flow = bench.start(0, 1, kPackets * kFull, transport);
    bench.run_to_the_end();
    const std::uint64_t expected = Pile::finding_more_than(threshold, kPackets);
    EXPECT_EQ(bench.network.counters().marks, expected);
    // The echo of the last packet comes after the flow has ended; every other mark has been echoed.
    EXPECT_LE(bench.result(flow).counters.marks_echoed, expected);
  }
}

TEST(FabricQueues, marks__not_on_packets_that_are_not_capable) {
  NetworkOptions options;
  options.queues.mark_above = Bytes(1);
  const topology::Topology net = star({link(100), link(10)});
  Bench bench(net, options);
  const WindowTransport transport(burst(Ecn::kNotCapable));
  bench.start(0, 1, 100 * kFull, transport);
  bench.run_to_the_end();
  EXPECT_EQ(bench.network.counters().marks, 0U);
  EXPECT_EQ(bench.network.counters().drops_selective, 0U);
}

TEST(FabricQueues, full_port__keeps_as_much_as_fits) {
  NetworkOptions options;
  options.queues.port_buffer = Bytes(10 * kWire);
  const topology::Topology net = star({link(100), link(10)});
  Bench bench(net, options);
  const WindowTransport transport(burst(Ecn::kNotCapable));
  bench.start(0, 1, 20 * kFull, transport);
  EXPECT_FALSE(bench.network.run(Time::at(Duration::microseconds(6))));
  // In the 2.28 µs of the burst, transmission of two packets begins and ten wait.
  EXPECT_EQ(bench.network.counters().drops_full, 8U);
  bench.run_to_the_end();
}

TEST(FabricQueues, shared_buffer__limits_the_sum_over_ports) {
  NetworkOptions options;
  options.queues.shared_buffer = Bytes(10 * kWire);
  const topology::Topology net = star({link(100), link(100), link(10), link(10)});
  Bench bench(net, options);
  const WindowTransport transport(burst(Ecn::kNotCapable));
  bench.start(0, 2, 20 * kFull, transport);
  bench.start(1, 3, 20 * kFull, transport);
  EXPECT_FALSE(bench.network.run(Time::at(Duration::microseconds(6))));
  // As above, on two ports that share room for ten packets.
  EXPECT_EQ(bench.network.counters().drops_full, 40U - 2 * 2 - 10);
  bench.run_to_the_end();
}

// Thresholds 10 and 15 packets for queues 1 and 2; queue 0 is exempt.
TEST(FabricQueues, selective__drops_what_is_not_capable_above_the_queue_threshold) {
  for (std::uint8_t queue = 0; queue < 3; ++queue) {
    SCOPED_TRACE(int{queue});
    NetworkOptions options;
    options.queues.discipline = QueueOptions::Discipline::kStrictPriority;
    options.queues.selective_threshold = Bytes(10 * kWire);
    options.queues.selective_step = 0.5;
    const topology::Topology net = star({link(100), link(10)});
    Bench plain(net, options);
    const WindowTransport incapable(burst(Ecn::kNotCapable, queue));
    plain.start(0, 1, 40 * kFull, incapable);
    EXPECT_FALSE(plain.network.run(Time::at(Duration::microseconds(8))));
    // In a burst of 4.68 µs, transmission of four packets begins. One more than the threshold may
    // wait, since a packet that finds exactly the threshold is accepted; each start makes room for
    // one more.
    const std::uint64_t kept = queue == 1 ? 15 : 20;
    EXPECT_EQ(plain.network.counters().drops_selective, queue == 0 ? 0 : 40 - kept);
    EXPECT_EQ(plain.network.counters().marks, 0U);
    plain.run_to_the_end();

    Bench marked(net, options);
    const WindowTransport capable(burst(Ecn::kCapable, queue));
    marked.start(0, 1, 40 * kFull, capable);
    marked.run_to_the_end();
    const std::int64_t threshold = (queue == 1 ? 10 : 15) * kWire;
    const std::uint64_t over = Pile::finding_more_than(threshold, 40);
    EXPECT_EQ(marked.network.counters().marks, queue == 0 ? 0 : over);
    EXPECT_EQ(marked.network.counters().drops_selective, 0U);
  }
}

TEST(FabricQueues, strict_priority__urgent_flow_waits_for_one_packet_at_most) {
  NetworkOptions options;
  options.queues.discipline = QueueOptions::Discipline::kStrictPriority;
  const topology::Topology net = star({link(10), link(10), link(10)});
  Bench bench(net, options);
  const WindowTransport patient(burst(Ecn::kNotCapable, 5));
  const WindowTransport urgent(burst(Ecn::kNotCapable, 1));
  const FlowId slow = bench.start(0, 2, 100 * kFull, patient);
  FlowId fast;
  bench.network.call_at(Time::at(Duration::microseconds(50)),
                        [&] { fast = bench.start(1, 2, 20 * kFull, urgent); });
  bench.run_to_the_end();
  const FlowResult& quick = bench.result(fast);
  EXPECT_LE(quick.completion_time(), quick.oracle + Duration::nanoseconds(1200));
  // Both flows share the last link, which is never idle; the less urgent flow ends last, on time.
  EXPECT_EQ(bench.result(slow).end.since_start(), Duration::nanoseconds(121 * 1200 + 2000));
}

TEST(FabricQueues, host__sends_urgent_flows_first) {
  const topology::Topology net = star({link(10), link(10)});
  Bench bench(net, {});
  const WindowTransport patient(burst(Ecn::kNotCapable, 5));
  const WindowTransport urgent(burst(Ecn::kNotCapable, 1));
  bench.start(0, 1, 100 * kFull, patient);
  const FlowId fast = bench.start(0, 1, 1460, urgent);
  bench.run_to_the_end();
  // One packet of the other flow is on the wire already; the switch has no queue.
  EXPECT_EQ(bench.result(fast).completion_time(), Duration::nanoseconds(3 * 1200 + 2000));
  EXPECT_EQ(bench.network.counters().peak_host_backlog, 100U * kWire);
}

TEST(FabricQueues, pfabric__short_flow_overtakes_and_is_not_dropped) {
  NetworkOptions options;
  options.queues.discipline = QueueOptions::Discipline::kPFabric;
  options.queues.port_buffer = Bytes(10 * kWire);
  const topology::Topology net = star({link(10), link(10), link(10), link(10)});
  Bench bench(net, options);
  WindowOptions window = burst(Ecn::kNotCapable);
  window.timeout = Duration::milliseconds(1);
  const WindowTransport transport(window);
  bench.start(0, 3, 100 * kFull, transport);
  bench.start(1, 3, 100 * kFull, transport);
  FlowId fast;
  bench.network.call_at(Time::at(Duration::microseconds(40)),
                        [&] { fast = bench.start(2, 3, 8 * kFull, transport); });
  bench.run_to_the_end();
  const FlowResult& quick = bench.result(fast);
  EXPECT_LE(quick.completion_time(), quick.oracle + Duration::nanoseconds(1200));
  EXPECT_EQ(quick.counters.timeouts, 0U);
  EXPECT_GT(bench.network.counters().drops_full, 0U);
}

// Bytes on each uplink of the first rack. With 1 host per rack these are the uplinks of one host.
std::vector<std::uint64_t> uplink_bytes(LoadBalancing balancing, int flows) {
  const topology::Topology net =
      fixture::topology("leaf-spine:racks=2,hosts=1,spines=4,host=100G,uplink=100G,buffer=100MB");
  NetworkOptions options;
  options.balancing = balancing;
  Bench bench(net, options);
  const WindowTransport transport({});
  for (int i = 0; i < flows; ++i) bench.start(0, 1, 100 * kFull, transport);
  bench.run_to_the_end();
  const topology::NodeId leaf = net.arc(net.arcs_from(net.host(Rank(0)))[0]).to;
  std::vector<std::uint64_t> bytes;
  for (const topology::ArcId arc : net.arcs_from(leaf)) {
    if (!net.rank_of(net.arc(arc).to).valid())
      bytes.push_back(bench.network.arc_bytes()[arc.index()]);
  }
  std::sort(bytes.begin(), bytes.end());
  return bytes;
}

TEST(FabricRouting, flow_hash__one_flow_one_path_many_flows_all_paths) {
  const std::vector<std::uint64_t> one = uplink_bytes(LoadBalancing::kFlowHash, 1);
  EXPECT_EQ(one, (std::vector<std::uint64_t>{0, 0, 0, 100 * kWire}));
  EXPECT_GT(uplink_bytes(LoadBalancing::kFlowHash, 60).front(), 0U);
}

TEST(FabricRouting, per_packet__one_flow_all_paths) {
  const std::vector<std::uint64_t> bytes = uplink_bytes(LoadBalancing::kPerPacket, 1);
  EXPECT_GT(bytes.front(), 10U * kWire);
  EXPECT_LT(bytes.back(), 40U * kWire);
}

TEST(FabricRouting, label__one_flow_all_paths_evenly) {
  EXPECT_EQ(uplink_bytes(LoadBalancing::kLabel, 1), std::vector<std::uint64_t>(4, 25 * kWire));
}

}  // namespace
}  // namespace thalweg::sim
