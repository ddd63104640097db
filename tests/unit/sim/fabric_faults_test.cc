#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/prng.h"
#include "fabric_fixture.h"
#include "sim/core/link_loss.h"
#include "sim/core/route_table.h"

namespace thalweg::sim {
namespace {

using fixture::Bench;
using fixture::kFull;
using fixture::kWire;
using fixture::link;
using fixture::star;
using fixture::WindowOptions;
using fixture::WindowTransport;

Time at_ns(std::int64_t ns) { return Time::at(Duration::nanoseconds(ns)); }

TEST(LinkLoss, random__loses_the_given_part) {
  LinkLoss loss(Prng(3));
  loss.set_random(0.1);
  int lost = 0;
  for (int i = 0; i < 100'000; ++i) lost += loss.loses() ? 1 : 0;
  EXPECT_NEAR(lost, 10'000, 400);
  loss.set_random(0);
  EXPECT_FALSE(loss.active());
}

TEST(LinkLoss, bursty__mean_lengths_hold) {
  LinkLoss loss(Prng(4));
  loss.set_bursty(90, 10);
  int lost = 0;
  int bursts = 0;
  bool before = false;
  for (int i = 0; i < 1'000'000; ++i) {
    const bool now = loss.loses();
    lost += now ? 1 : 0;
    bursts += now && !before ? 1 : 0;
    before = now;
  }
  EXPECT_NEAR(lost, 100'000, 5'000);
  EXPECT_NEAR(static_cast<double>(lost) / bursts, 10, 0.5);
}

TEST(FabricFaults, rate_factor__counts_from_the_next_packet_on) {
  const topology::Topology net = star({link(10), link(10)});
  Bench bench(net, {});
  const WindowTransport transport({});
  const FlowId flow = bench.start(0, 1, 10 * kFull, transport);
  // The rate changes in the middle of packet 3 on the sender's link.
  bench.network.call_at(at_ns(3000),
                        [&] { bench.network.set_rate_factor(topology::LinkId(0), 0.5); });
  bench.run_to_the_end();
  // Three packets take 1.2 µs each, seven 2.4 µs, and the last one then crosses the other link.
  EXPECT_EQ(bench.result(flow).completion_time(),
            Duration::nanoseconds(3 * 1200 + 7 * 2400 + 1200 + 2000));
}

TEST(FabricFaults, rate_factor__above_one_moves_the_oracle) {
  const topology::Topology net = star({link(10), link(10)});
  Bench bench(net, {});
  bench.network.set_rate_factor(topology::LinkId(0), 4);
  bench.network.set_rate_factor(topology::LinkId(1), 4);
  const WindowTransport transport({});
  const FlowId flow = bench.start(0, 1, 10 * kFull, transport);
  bench.run_to_the_end();
  EXPECT_EQ(bench.result(flow).completion_time(), Duration::nanoseconds(11 * 300 + 2000));
}

TEST(FabricFaults, pause__holds_what_has_not_begun) {
  const topology::Topology net = star({link(10), link(10)});
  Bench bench(net, {});
  const WindowTransport transport({});
  const FlowId flow = bench.start(0, 1, 10 * kFull, transport);
  bench.network.call_at(at_ns(3000), [&] { bench.network.set_host_paused(Rank(0), true); });
  bench.network.call_at(at_ns(100'000), [&] { bench.network.set_host_paused(Rank(0), false); });
  bench.run_to_the_end();
  EXPECT_EQ(bench.result(flow).completion_time(),
            Duration::nanoseconds(100'000 + 7 * 1200 + 1200 + 2000));
}

TEST(FabricFaults, pause__flow_that_starts_then_waits) {
  const topology::Topology net = star({link(10), link(10)});
  Bench bench(net, {});
  bench.network.set_host_paused(Rank(0), true);
  const WindowTransport transport({});
  const FlowId flow = bench.start(0, 1, 1460, transport);
  EXPECT_EQ(bench.network.queued_bytes(topology::ArcId(0)), 1500U);
  bench.network.call_at(at_ns(50'000), [&] { bench.network.set_host_paused(Rank(0), false); });
  bench.run_to_the_end();
  EXPECT_EQ(bench.result(flow).completion_time(), Duration::nanoseconds(50'000 + 2400 + 2000));
}

TEST(FabricFaults, restart__loses_what_waits_in_the_switch_and_no_more) {
  const topology::Topology net = star({link(100), link(10)});
  Bench bench(net, {});
  const WindowTransport transport({});
  bench.start(0, 1, 20 * kFull, transport);
  // All twenty have reached the switch, and three have begun the second hop.
  const topology::NodeId hub = net.arc(net.arcs_from(net.host(Rank(0)))[0]).to;
  const topology::ArcId last(3);
  bench.network.call_at(at_ns(4000), [&] {
    EXPECT_EQ(bench.network.queued_bytes(last), 17U * kWire);
    bench.network.restart_switch(hub);
    EXPECT_EQ(bench.network.queued_bytes(last), 0U);
    EXPECT_EQ(bench.network.counters().drops_fault, 17U);
  });
  bench.run_to_the_end();
  EXPECT_EQ(bench.network.counters().drops_fault, 17U);
  EXPECT_EQ(bench.results.at(0).counters.timeouts, 1U);
}

TEST(FabricFaults, link_down__loses_wire_and_port_and_recovers) {
  const topology::Topology net = star({link(100), link(10)});
  Bench bench(net, {});
  const WindowTransport transport({});
  bench.start(0, 1, 20 * kFull, transport);
  // Packet k begins its second hop at 1.12 + 1.2·k µs. Two have arrived; the second one's
  // acknowledgement and the third packet are on the wire, and seventeen packets wait.
  bench.network.call_at(at_ns(4600), [&] {
    bench.network.set_link_up(topology::LinkId(1), false);
    EXPECT_EQ(bench.network.counters().drops_fault, 19U);
    EXPECT_EQ(bench.network.violations(), std::vector<std::string>{});
  });
  bench.network.call_at(at_ns(3'000'000),
                        [&] { bench.network.set_link_up(topology::LinkId(1), true); });
  bench.run_to_the_end();
  EXPECT_GE(bench.results.at(0).counters.timeouts, 3U);
}

TEST(FabricFaults, link_down__routing_goes_around) {
  const topology::Topology net =
      fixture::topology("leaf-spine:racks=2,hosts=2,spines=2,host=10G,uplink=10G,buffer=10MB");
  Bench bench(net, {});
  // Cut the first spine off the first rack.
  const topology::NodeId leaf = net.arc(net.arcs_from(net.host(Rank(0)))[0]).to;
  topology::ArcId cut;
  for (const topology::ArcId arc : net.arcs_from(leaf)) {
    if (!cut.valid() && !net.rank_of(net.arc(arc).to).valid()) cut = arc;
  }
  bench.network.set_link_up(topology::LinkId(cut.value() / 2), false);
  const WindowTransport transport({});
  for (int i = 0; i < 20; ++i) bench.start(i % 2, 2 + i / 2 % 2, 10 * kFull, transport);
  for (int i = 0; i < 20; ++i) bench.start(2 + i % 2, i / 2 % 2, 10 * kFull, transport);
  bench.run_to_the_end();
  EXPECT_EQ(bench.network.counters().drops_fault, 0U);
  EXPECT_EQ(bench.network.arc_bytes()[cut.index()], 0U);
  EXPECT_EQ(bench.network.arc_bytes()[cut.index() ^ 1], 0U);
}

TEST(RouteTable, hops__agree_with_the_routing_of_the_topology) {
  for (const char* shorthand :
       {"single-switch:hosts=5", "leaf-spine:racks=3,hosts=4,spines=2", "fat-tree:k=4"}) {
    SCOPED_TRACE(shorthand);
    const topology::Topology net = fixture::topology(shorthand);
    const topology::Routing routing(net);
    const RouteTable table(net);
    for (std::size_t n = 0; n < net.nodes().size(); ++n) {
      const topology::NodeId node(static_cast<std::int32_t>(n));
      for (int r = 0; r < net.host_count(); ++r) {
        if (net.host(Rank(r)) == node) continue;
        std::vector<std::uint32_t> expected;
        for (const topology::ArcId arc : routing.next_hops(node, Rank(r))) {
          expected.push_back(static_cast<std::uint32_t>(arc.value()));
        }
        const auto hops = table.hops(static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(r));
        EXPECT_EQ(std::vector<std::uint32_t>(hops.begin(), hops.end()), expected);
      }
    }
  }
}

// Random faults on a random network. All end at some time, and then everything must arrive.
class FaultStorm {
 public:
  FaultStorm(const topology::Topology& net, std::uint64_t seed)
      : net_(net), prng_(seed), bench_(net, options(prng_, seed)), transport_(window(prng_)) {}

  void run() {
    for (int i = 0; i < 30; ++i) bench_.network.call_at(some_time(), [this] { start_flow(); });
    for (int i = 0; i < 25; ++i) bench_.network.call_at(some_time(), [this] { cause_fault(); });
    bench_.network.call_at(Time::at(kStorm), [this] { heal(); });
    for (int i = 1; i < 20; ++i) {
      bench_.network.call_at(Time::at(kStorm / 20 * i), [this] {
        EXPECT_EQ(bench_.network.violations(), std::vector<std::string>{});
      });
    }
    bench_.run_to_the_end();
    EXPECT_EQ(bench_.results.size(), 30U);
    const NetworkCounters& c = bench_.network.counters();
    EXPECT_EQ(c.packets_sent,
              c.packets_delivered + c.drops_full + c.drops_selective + c.drops_fault);
    faults_dropped = c.drops_fault;
  }

  std::uint64_t faults_dropped = 0;

 private:
  static constexpr Duration kStorm = Duration::microseconds(2000);

  static NetworkOptions options(Prng& prng, std::uint64_t seed) {
    NetworkOptions options;
    options.seed = seed;
    options.queues.discipline = static_cast<QueueOptions::Discipline>(prng.below(3));
    options.queues.port_buffer = Bytes(static_cast<std::int64_t>(3000 + prng.below(60'000)));
    if (prng.chance(0.3)) options.queues.shared_buffer = Bytes(50'000);
    if (prng.chance(0.5)) options.queues.mark_above = Bytes(10'000);
    if (prng.chance(0.3)) options.queues.selective_threshold = Bytes(15'000);
    options.queues.selective_step = 0.2;
    options.balancing = static_cast<LoadBalancing>(prng.below(3));
    return options;
  }
  static WindowOptions window(Prng& prng) {
    WindowOptions window;
    window.window_bytes = kFull * (1 + prng.below(60));
    window.priority = static_cast<std::uint8_t>(prng.below(8));
    window.timeout = Duration::microseconds(300);
    if (prng.chance(0.5)) window.ecn = Ecn::kCapable;
    return window;
  }

  std::uint64_t below(std::size_t bound) { return prng_.below(bound); }
  Time some_time() {
    return Time::at(Duration::picoseconds(
        static_cast<std::int64_t>(prng_.below(static_cast<std::uint64_t>(kStorm.ps())))));
  }
  topology::LinkId some_link() {
    return topology::LinkId(static_cast<std::int32_t>(below(net_.links().size())));
  }
  topology::ArcId some_arc() {
    return topology::ArcId(static_cast<std::int32_t>(below(net_.arc_count())));
  }
  Rank some_host() {
    return Rank(static_cast<std::int32_t>(below(static_cast<std::size_t>(net_.host_count()))));
  }

  void start_flow() {
    const Rank from = some_host();
    Rank to = some_host();
    while (to == from) to = some_host();
    bench_.start(from.value(), to.value(), 1 + below(300'000), transport_);
  }
  void cause_fault() {
    Network& network = bench_.network;
    switch (prng_.below(7)) {
      case 0:
        return network.set_loss(some_arc(), prng_.real() * 0.3);
      case 1:
        return network.set_bursty_loss(some_arc(), 1 + prng_.real() * 50, 1 + prng_.real() * 10);
      case 2:
      case 3:
        return network.set_link_up(some_link(), prng_.chance(0.4));
      case 4:
        return network.set_rate_factor(some_link(), 0.1 + prng_.real() * 2);
      case 5:
        return network.set_host_paused(some_host(), prng_.chance(0.6));
      default:
        for (std::size_t n = below(net_.nodes().size()); n < net_.nodes().size(); ++n) {
          const topology::NodeId node(static_cast<std::int32_t>(n));
          if (!net_.rank_of(node).valid()) return network.restart_switch(node);
        }
    }
  }
  void heal() {
    for (std::size_t l = 0; l < net_.links().size(); ++l) {
      const topology::LinkId link(static_cast<std::int32_t>(l));
      bench_.network.set_link_up(link, true);
      bench_.network.set_rate_factor(link, 1);
      for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
        bench_.network.set_loss(topology::ArcId(static_cast<std::int32_t>(l * 2 + side)), 0);
      }
    }
    for (int r = 0; r < net_.host_count(); ++r) bench_.network.set_host_paused(Rank(r), false);
  }

  const topology::Topology& net_;
  Prng prng_;
  Bench bench_;
  WindowTransport transport_;
};

TEST(FabricFaults, storm__conservation_holds_and_everything_arrives) {
  const std::vector<topology::Topology> nets{
      fixture::topology("single-switch:hosts=6,host=10G"),
      fixture::topology("leaf-spine:racks=3,hosts=3,spines=2,host=10G,uplink=10G"),
      fixture::topology("fat-tree:k=4,host=10G")};
  std::uint64_t dropped = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    FaultStorm storm(nets[seed % nets.size()], seed);
    storm.run();
    dropped += storm.faults_dropped;
  }
  EXPECT_GT(dropped, 1000U);
}

}  // namespace
}  // namespace thalweg::sim
