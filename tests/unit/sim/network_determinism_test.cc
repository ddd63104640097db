#include <cstdint>
#include <vector>

#include "base/prng.h"
#include "fabric_fixture.h"

namespace thalweg::sim {
namespace {

using fixture::Bench;
using fixture::kFull;
using fixture::WindowOptions;
using fixture::WindowTransport;

Time at_us(std::int64_t us) { return Time::at(Duration::microseconds(us)); }

struct Outcome {
  std::vector<std::int64_t> ends_ps;
  std::vector<std::uint64_t> segments;
  std::vector<std::uint64_t> arc_bytes;
  std::uint64_t events = 0;
  bool operator==(const Outcome&) const = default;
};

Outcome run(std::uint64_t seed, LoadBalancing balancing) {
  const topology::Topology net =
      fixture::topology("leaf-spine:racks=3,hosts=4,spines=3,host=10G,uplink=10G,buffer=30kB");
  NetworkOptions options;
  options.seed = seed;
  options.balancing = balancing;
  options.queues.discipline = QueueOptions::Discipline::kStrictPriority;
  Bench bench(net, options);
  WindowOptions window;
  window.window_bytes = 20 * kFull;
  const WindowTransport urgent(window);
  window.priority = 3;
  const WindowTransport patient(window);
  bench.network.set_loss(topology::ArcId(3), 0.01);
  bench.network.call_at(at_us(100),
                        [&] { bench.network.set_link_up(topology::LinkId(13), false); });
  Prng prng(99);
  for (int i = 0; i < 60; ++i) {
    const int from = static_cast<int>(prng.below(12));
    const int to = (from + 1 + static_cast<int>(prng.below(11))) % 12;
    bench.start(from, to, 1 + prng.below(100'000), i % 2 == 0 ? urgent : patient);
  }
  bench.run_to_the_end();
  Outcome outcome;
  for (const FlowResult& result : bench.results) {
    outcome.ends_ps.push_back(result.end.since_start().ps());
    outcome.segments.push_back(result.counters.segments);
  }
  outcome.arc_bytes = bench.network.arc_bytes();
  outcome.events = bench.network.counters().events;
  return outcome;
}

TEST(Network, seed__same_seed_same_result) {
  EXPECT_EQ(run(5, LoadBalancing::kPerPacket), run(5, LoadBalancing::kPerPacket));
  EXPECT_EQ(run(5, LoadBalancing::kFlowHash), run(5, LoadBalancing::kFlowHash));
}

TEST(Network, seed__another_seed_sprays_otherwise) {
  EXPECT_NE(run(5, LoadBalancing::kPerPacket), run(6, LoadBalancing::kPerPacket));
}

TEST(Network, call_at__in_order_of_time_then_of_calls) {
  const topology::Topology net = fixture::topology("single-switch:hosts=2");
  Network network(net, {});
  std::vector<int> order;
  network.call_at(at_us(2), [&] {
    order.push_back(3);
    network.call_at(network.now(), [&] { order.push_back(5); });
  });
  network.call_at(at_us(1), [&] { order.push_back(1); });
  network.call_at(at_us(2), [&] { order.push_back(4); });
  network.call_at(at_us(1), [&] { order.push_back(2); });
  EXPECT_TRUE(network.run(fixture::kForever));
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3, 4, 5}));
  EXPECT_EQ(network.now(), at_us(2));
}

TEST(Network, run__stops_at_until_and_goes_on) {
  const topology::Topology net = fixture::topology("single-switch:hosts=2");
  Network network(net, {});
  int calls = 0;
  network.call_at(at_us(10), [&] { ++calls; });
  network.call_at(at_us(20), [&] { ++calls; });
  EXPECT_FALSE(network.run(at_us(15)));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(network.now(), at_us(15));
  EXPECT_TRUE(network.run(at_us(20)));
  EXPECT_EQ(calls, 2);
}

TEST(Network, on_flow_done__may_start_the_next_flow) {
  const topology::Topology net = fixture::topology("single-switch:hosts=2");
  Bench bench(net, {});
  const WindowTransport transport({});
  bench.network.on_flow_done([&](const FlowResult& result) {
    if (bench.results.size() < 50) {
      bench.start(result.spec.target.value(), result.spec.source.value(), 5000, transport);
    }
  });
  bench.start(0, 1, 5000, transport);
  bench.run_to_the_end();
  ASSERT_EQ(bench.results.size(), 50U);
  const Duration notice = net.links()[0].spec.delay + net.links()[1].spec.delay;
  for (std::size_t i = 1; i < 50; ++i) {
    EXPECT_EQ(bench.results[i].start, bench.results[i - 1].end + notice);
  }
}

// The test transport adds one byte to the window that it gets: from a window of one byte the second
// flow starts with two, and so on, which makes the warm chain visible.
TEST(Network, warm__hands_the_window_on_between_the_same_hosts) {
  const topology::Topology net = fixture::topology("single-switch:hosts=3");
  Network network(net, {});
  WindowOptions options;
  options.window_bytes = 1460;
  const WindowTransport transport(options);
  std::vector<Duration> times;
  network.on_flow_done(
      [&](const FlowResult& result) { times.push_back(result.completion_time()); });
  const FlowSpec warm{Rank(0), Rank(1), 3 * kFull, &transport, true, 0};
  FlowSpec cold = warm;
  cold.warm = false;
  FlowSpec elsewhere = warm;
  elsewhere.target = Rank(2);
  for (const FlowSpec& spec : {warm, warm, cold, elsewhere}) {
    network.start_flow(spec);
    EXPECT_TRUE(network.run(fixture::kForever));
  }
  ASSERT_EQ(times.size(), 4U);
  EXPECT_LT(times[1], times[0]);  // 1461 bytes: two packets at a time
  EXPECT_EQ(times[2], times[0]);
  EXPECT_EQ(times[3], times[0]);
}

// Each packet carries 100 bytes more than the last: the pipeline fills faster than with full ones.
class Growing final : public Sender {
 public:
  void start(Time /*now*/) override {}
  void on_ack(Time /*now*/, const Acknowledgement& ack) override { acked_ = ack.next_expected; }
  void on_timeout(Time /*now*/) override {}
  bool poll_transmit(Time /*now*/, SegmentToSend& out) override {
    if (sent_ == kBytes) return false;
    out.sequence = sent_;
    out.payload = size_ += 100;
    sent_ += out.payload;
    return true;
  }
  [[nodiscard]] std::optional<Time> next_timeout() const override { return std::nullopt; }
  [[nodiscard]] bool done() const override { return acked_ == kBytes; }
  [[nodiscard]] const SenderCounters& counters() const override { return counters_; }
  [[nodiscard]] double window() const override { return 0; }
  static constexpr std::uint64_t kBytes = 100 + 200 + 300 + 400;

 private:
  std::uint32_t size_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t acked_ = 0;
  SenderCounters counters_;
};

class GrowingTransport final : public TransportFactory {
 public:
  [[nodiscard]] std::unique_ptr<Sender> make_sender(
      std::uint64_t /*bytes*/, std::optional<double> /*window*/) const override {
    return std::make_unique<Growing>();
  }
  [[nodiscard]] std::uint32_t header_bytes() const override { return 40; }
  [[nodiscard]] std::string describe() const override { return "growing"; }
};

TEST(Network, oracle__a_flow_of_mixed_packet_sizes_is_not_called_too_fast) {
  const topology::Topology net = fixture::topology("leaf-spine:racks=2,hosts=1,spines=1");
  Bench bench(net, {});
  const GrowingTransport transport;
  bench.start(0, 1, Growing::kBytes, transport);
  bench.run_to_the_end();
  EXPECT_GE(bench.results.at(0).completion_time(), bench.results.at(0).oracle);
}

}  // namespace
}  // namespace thalweg::sim
