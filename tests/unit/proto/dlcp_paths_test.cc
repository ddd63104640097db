// Several paths between two ends that differ in delay, loss and rate.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "proto/dlcp_world.h"

namespace thalweg::proto {
namespace {

constexpr std::uint32_t kBatch = 8;

// Four paths of 100 Mb/s each under a line of 200 Mb/s, as two ports that share each of two
// uplinks would have, and batches as sockets send them.
WorldOptions four_paths() {
  WorldOptions options;
  options.endpoints[0].peer = "bob";
  options.endpoints[1].peer = "alice";
  for (DlcpOptions& endpoint : options.endpoints) {
    endpoint.rate.line_rate = Bandwidth::bits_per_second(200'000'000);
    endpoint.rate.report_period = Duration::milliseconds(2);
    endpoint.burst_segments = kBatch;
    endpoint.paths.least_packets = kBatch * kBatch;
    endpoint.paths.growth = 1.3;
  }
  options.channels[0].paths.resize(4);
  for (PathChannel& path : options.channels[0].paths) {
    path.bottleneck = Bandwidth::bits_per_second(100'000'000);
    path.longest_wait = Duration::milliseconds(20);
  }
  options.channels[0].stop_copies = true;
  options.with_bytes = true;
  return options;
}

// Adds `count` tensors of 100 segments of 1400 bytes from end 0 to end 1, one every 7 ms: 87 % of
// the line.
void plan_transfers(WorldOptions& options, std::uint64_t count, double bound = 0) {
  for (std::uint64_t i = 0; i < count; ++i) {
    PlannedTransfer planned;
    planned.spec.key = i;
    planned.spec.elements = 100 * 350;
    planned.spec.bound = *LossBound::of(bound);
    planned.send_at = Time() + Duration::milliseconds(7) * static_cast<std::int64_t>(i);
    planned.receive_at = planned.send_at;
    options.transfers.push_back(planned);
  }
}

void expect_all_arrived(const World& world) {
  for (const TransferResult& result : world.results()) {
    ASSERT_TRUE(result.received && result.received->ok());
  }
}

// Packets that were sent again though the first was not lost, as a part of all.
double needless(const World& world) {
  const DlcpCounters& sent = world.endpoint(0).counters();
  const DlcpCounters& received = world.endpoint(1).counters();
  return static_cast<double>(received.duplicate + received.late + received.stale) /
         static_cast<double>(sent.segments_sent);
}

std::vector<double> shares(const World& world) {
  const auto all = static_cast<double>(
      std::accumulate(world.taken().begin(), world.taken().end(), std::uint64_t{0}));
  std::vector<double> parts;
  for (const std::uint64_t taken : world.taken()) parts.push_back(static_cast<double>(taken) / all);
  return parts;
}

TEST(DlcpPaths, equal_paths__each_takes_its_part_and_nothing_is_sent_twice) {
  WorldOptions options = four_paths();
  plan_transfers(options, 100);
  World world(options);
  ASSERT_EQ(world.run(), "");
  expect_all_arrived(world);
  for (const double share : shares(world)) EXPECT_NEAR(share, 0.25, 0.02);
  EXPECT_EQ(world.endpoint(0).counters().segments_retransmitted, 0U);
}

TEST(DlcpPaths, different_delays__order_is_judged_within_a_path) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE(seed);
    WorldOptions options = four_paths();
    options.seed = seed;
    options.channels[0].paths[1].delay = Duration::milliseconds(3);
    options.channels[0].paths[2].delay = Duration::microseconds(500);
    plan_transfers(options, 100);
    World world(options);
    ASSERT_EQ(world.run(), "");
    expect_all_arrived(world);
    EXPECT_LT(needless(world), 0.02);
  }
}

TEST(DlcpPaths, different_delays_and_loss__exact_and_few_needless_resends) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE(seed);
    WorldOptions options = four_paths();
    options.seed = seed;
    options.channels[0].paths[1].delay = Duration::milliseconds(3);
    for (PathChannel& path : options.channels[0].paths) path.loss = 0.005;
    plan_transfers(options, 100);
    World world(options);
    ASSERT_EQ(world.run(), "");
    expect_all_arrived(world);
    EXPECT_GT(world.lost(), 20U);
    EXPECT_LT(needless(world), 0.03);
  }
}

TEST(DlcpPaths, different_delays_and_loss__the_bound_is_kept) {
  WorldOptions options = four_paths();
  options.channels[0].paths[1].delay = Duration::milliseconds(3);
  for (PathChannel& path : options.channels[0].paths) path.loss = 0.01;
  plan_transfers(options, 100, 0.05);
  World world(options);
  ASSERT_EQ(world.run(), "");
  expect_all_arrived(world);
  for (const TransferResult& result : world.results()) EXPECT_GE(result.received->arrived, 95);
}

TEST(DlcpPaths, dead_path__is_left_within_100_ms_and_comes_back) {
  WorldOptions options = four_paths();
  options.channels[0].paths[2].dead_from = Time() + Duration::milliseconds(200);
  options.channels[0].paths[2].dead_until = Time() + Duration::milliseconds(700);
  plan_transfers(options, 400);
  World world(options);
  world.keep_sent();
  ASSERT_EQ(world.run(), "");
  expect_all_arrived(world);
  // Beside what the path swallowed, nothing much is sent twice.
  EXPECT_LT(needless(world), 0.02);
  const auto part = [&](std::int64_t from_ms, std::int64_t to_ms) {
    double taken = 0;
    double all = 0;
    for (const World::Sent& sent : world.sent()) {
      const double ms = sent.at.since_start().s() * 1e3;
      if (ms < static_cast<double>(from_ms) || ms >= static_cast<double>(to_ms)) continue;
      all += 1;
      taken += sent.path == 2 ? 1 : 0;
    }
    return taken / all;
  };
  EXPECT_NEAR(part(0, 200), 0.25, 0.03);
  EXPECT_LT(part(300, 700), 0.03);
  EXPECT_GT(part(2000, 2800), 0.1) << "it is used again";
}

TEST(DlcpPaths, slow_path__gets_about_what_it_carries) {
  WorldOptions options = four_paths();
  // 3 × 100 + 10 Mb/s, where an even share of 200 would be 50.
  options.channels[0].paths[3].bottleneck = Bandwidth::bits_per_second(10'000'000);
  plan_transfers(options, 300);
  World world(options);
  ASSERT_EQ(world.run(), "");
  expect_all_arrived(world);
  EXPECT_LT(shares(world)[3], 0.12);
  EXPECT_GT(shares(world)[0], 0.27);
}

// Sixteen ports over two uplinks of 100 Mb/s, of which a hash puts `first` on the first.
WorldOptions sixteen_ports(std::size_t first) {
  WorldOptions options = four_paths();
  options.channels[0].paths.assign(16, options.channels[0].paths[0]);
  for (std::size_t p = 0; p < 16; ++p) {
    PathChannel& path = options.channels[0].paths[p];
    path.behind = static_cast<std::int32_t>(p < first ? 0 : first);
    path.longest_wait = Duration::milliseconds(40);
  }
  return options;
}

// The part of the packets from `from_ms` on that took the first uplink.
double on_first_uplink(const World& world, std::size_t first, double from_ms) {
  double taken = 0;
  double all = 0;
  for (const World::Sent& sent : world.sent()) {
    if (sent.at.since_start().s() * 1e3 < from_ms) continue;
    all += 1;
    taken += sent.path < first ? 1 : 0;
  }
  return taken / all;
}

TEST(DlcpPaths, ports_that_share_uplinks_unevenly__uplinks_get_equal_parts) {
  for (const std::size_t first : {6U, 10U, 12U, 14U}) {
    SCOPED_TRACE(first);
    WorldOptions options = sixteen_ports(first);
    plan_transfers(options, 300);
    World world(options);
    world.keep_sent();
    ASSERT_EQ(world.run(), "");
    expect_all_arrived(world);
    // Neither is given more than the 100 Mb/s that it carries, of 174.
    EXPECT_LT(on_first_uplink(world, first, 500), 0.575);
    EXPECT_GT(on_first_uplink(world, first, 500), 0.425);
    EXPECT_LT(needless(world), 0.01);
    EXPECT_LT(world.now(), Time() + Duration::milliseconds(2110)) << "the last one left at 2093";
  }
}

TEST(DlcpPaths, ports_that_share_uplinks_unevenly__without_learning_the_full_one_loses) {
  WorldOptions options = sixteen_ports(10);
  options.endpoints[0].paths.learn = false;
  plan_transfers(options, 300);
  World world(options);
  world.keep_sent();
  ASSERT_EQ(world.run(), "");
  expect_all_arrived(world);
  EXPECT_NEAR(on_first_uplink(world, 10, 0), 0.625, 0.01);
  EXPECT_GT(world.lost(), 100U);
}

// A longer route is no reason to use it less.
TEST(DlcpPaths, longer_route__keeps_its_share) {
  WorldOptions options = four_paths();
  options.channels[0].paths[1].delay = Duration::milliseconds(3);
  plan_transfers(options, 200);
  World world(options);
  ASSERT_EQ(world.run(), "");
  expect_all_arrived(world);
  EXPECT_NEAR(shares(world)[1], 0.25, 0.03);
}

}  // namespace
}  // namespace thalweg::proto
