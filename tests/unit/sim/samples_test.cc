#include "sim/observe/samples.h"

#include <algorithm>
#include <numeric>

#include "sim/fabric_fixture.h"

namespace thalweg::sim {
namespace {

using namespace fixture;

TEST(SampleTable, merge_pairs__keeps_an_odd_last) {
  SampleTable<int> table(2);
  for (const int value : {1, 5, 3, 2, 9}) {
    const auto row = table.add_sample();
    row[0] = value;
    row[1] = -value;
  }
  table.merge_pairs(5, [](int first, int second) { return std::max(first, second); });
  EXPECT_EQ(table[0][0], 5);
  EXPECT_EQ(table[0][1], -1);
  EXPECT_EQ(table[1][0], 3);
  EXPECT_EQ(table[2][0], 9);
  EXPECT_EQ(table[2][1], -9);
}

// Two hosts send to a third over one switch, so the port to it holds a queue.
class Incast {
 public:
  explicit Incast(std::uint64_t bytes)
      : topology_(topology("single-switch:hosts=3,host=10G")),
        network_(topology_, {}),
        transport_({.window_bytes = 64 * kFull}),
        bytes_(bytes) {}

  void start() {
    for (const int source : {0, 1}) {
      network_.start_flow({.source = Rank(source),
                           .target = Rank(2),
                           .bytes = bytes_,
                           .transport = &transport_,
                           .warm = false,
                           .tag = static_cast<std::uint64_t>(source)});
    }
  }
  Network& network() { return network_; }
  [[nodiscard]] topology::ArcId port_to_receiver() const {
    for (topology::ArcId arc(0); arc.index() < topology_.arc_count(); ++arc) {
      if (topology_.arc(arc).to == topology_.host(Rank(2))) return arc;
    }
    return {};
  }

 private:
  topology::Topology topology_;
  Network network_;
  WindowTransport transport_;
  std::uint64_t bytes_;
};

SamplerOptions by_tag(std::size_t most_samples) {
  return {.groups = 2,
          .group_of = [](const FlowSpec& spec) { return static_cast<std::size_t>(spec.tag); },
          .most_samples = most_samples};
}

TEST(Sampler, run__same_end_and_counters_as_without) {
  Incast plain(400 * kFull);
  plain.start();
  ASSERT_TRUE(plain.network().run(kForever));
  Incast sampled(400 * kFull);
  Sampler sampler(sampled.network(), by_tag(64));
  sampled.start();
  ASSERT_TRUE(sampler.run(kForever));
  sampler.finish();
  EXPECT_EQ(sampled.network().now(), plain.network().now());
  EXPECT_EQ(sampled.network().counters().events, plain.network().counters().events);
  EXPECT_EQ(sampled.network().counters().packet_hops, plain.network().counters().packet_hops);
  EXPECT_TRUE(sampled.network().violations().empty());
}

TEST(Sampler, run__ends_are_in_order_and_bounded) {
  for (const std::size_t most : {2U, 3U, 16U, 1024U}) {
    SCOPED_TRACE(most);
    Incast incast(400 * kFull);
    Sampler sampler(incast.network(), by_tag(most));
    incast.start();
    // Runs in slices, as a driver that shows progress does.
    Time until;
    while (!sampler.run(until)) until += Duration::nanoseconds(12'345);
    sampler.finish();
    const Samples& samples = sampler.samples();
    EXPECT_LE(samples.count(), most);
    EXPECT_EQ(samples.ends.back(), incast.network().now());
    for (std::size_t s = 0; s < samples.count(); ++s) {
      EXPECT_LT(samples.start_of(s), samples.ends[s]);
    }
  }
}

TEST(Sampler, samples__sums_are_those_of_the_network) {
  constexpr std::uint64_t kBytes = 400 * kFull;
  Incast incast(kBytes);
  Sampler sampler(incast.network(), by_tag(16));
  incast.start();
  ASSERT_TRUE(sampler.run(kForever));
  sampler.finish();
  const Samples& samples = sampler.samples();
  const std::size_t last = samples.count() - 1;
  for (std::size_t a = 0; a < incast.network().topology().arc_count(); ++a) {
    EXPECT_EQ(samples.carried[last][a], incast.network().arc_bytes()[a]);
  }
  EXPECT_EQ(samples.delivered[last][0], kBytes);
  EXPECT_EQ(samples.delivered[last][1], kBytes);
  // No arc carries more in a sample than its rate allows, but a packet may straddle the border.
  for (std::size_t s = 0; s <= last; ++s) {
    const double seconds = (samples.ends[s] - samples.start_of(s)).s();
    for (std::size_t a = 0; a < incast.network().topology().arc_count(); ++a) {
      const std::uint64_t before = s == 0 ? 0 : samples.carried[s - 1][a];
      EXPECT_LE(static_cast<double>(samples.carried[s][a] - before), 1.25e9 * seconds + 1500);
    }
    const std::uint64_t before = s == 0 ? 0 : samples.delivered[s - 1][0];
    EXPECT_GE(samples.delivered[s][0], before);
  }
}

// The deepest sample equals the network's own peak, however often samples were merged.
TEST(Sampler, deepest__is_exact_after_merging) {
  std::uint32_t seen = 0;
  for (const std::size_t most : {1024U, 2U}) {
    Incast incast(400 * kFull);
    Sampler sampler(incast.network(), by_tag(most));
    incast.start();
    ASSERT_TRUE(sampler.run(kForever));
    sampler.finish();
    const std::size_t port = incast.port_to_receiver().index();
    std::uint32_t deepest = 0;
    for (std::size_t s = 0; s < sampler.samples().count(); ++s) {
      deepest = std::max(deepest, sampler.samples().deepest[s][port]);
    }
    if (seen == 0) seen = deepest;
    EXPECT_EQ(deepest, seen);
  }
  // Two windows of 64 packets meet at one link; packets that are not in flight wait there.
  EXPECT_GT(seen, 64U * 1500);
  EXPECT_LT(seen, 128U * 1500);
}

TEST(Sampler, lost__counts_where_and_why) {
  Incast incast(400 * kFull);
  Sampler sampler(incast.network(), by_tag(16));
  const topology::ArcId port = incast.port_to_receiver();
  incast.network().set_loss(port, 0.05);
  incast.start();
  ASSERT_TRUE(sampler.run(kForever));
  sampler.finish();
  const Samples& samples = sampler.samples();
  const std::size_t last = samples.count() - 1;
  const std::uint64_t faults = incast.network().counters().drops_fault;
  EXPECT_GT(faults, 0U);
  EXPECT_EQ(samples.causes[last][Samples::kLostToFaults], faults);
  EXPECT_EQ(samples.causes[last][Samples::kLostFull], 0U);
  const auto lost = samples.lost[last];
  EXPECT_EQ(lost[port.index()], faults);
  EXPECT_EQ(std::accumulate(lost.begin(), lost.end(), std::uint64_t{0}), faults);
}

TEST(Sampler, run__stops_at_the_limit_of_time) {
  Incast incast(400 * kFull);
  Sampler sampler(incast.network(), by_tag(16));
  incast.start();
  const Time until = Time::at(Duration::microseconds(50));
  ASSERT_FALSE(sampler.run(until));
  EXPECT_EQ(incast.network().now(), until);
  sampler.finish();
  EXPECT_EQ(sampler.samples().ends.back(), until);
  const std::size_t last = sampler.samples().count() - 1;
  EXPECT_GT(sampler.samples().delivered[last][0], 0U);
  EXPECT_LT(sampler.samples().delivered[last][0], 400 * kFull);
}

TEST(Network, take_queue_peak__starts_from_what_waits_and_keeps_the_checkers_peak) {
  Incast incast(100 * kFull);
  incast.start();
  const topology::ArcId port = incast.port_to_receiver();
  ASSERT_FALSE(incast.network().run(Time::at(Duration::microseconds(60))));
  const std::uint64_t first = incast.network().take_queue_peak(port);
  const std::uint64_t waiting = incast.network().queued_bytes(port);
  EXPECT_GT(waiting, 0U);
  EXPECT_GE(first, waiting);
  EXPECT_EQ(incast.network().take_queue_peak(port), waiting);
  ASSERT_TRUE(incast.network().run(kForever));
  incast.network().take_queue_peak(port);
  EXPECT_EQ(incast.network().take_queue_peak(port), 0U);
}

}  // namespace
}  // namespace thalweg::sim
