// Networks with one property each, and how DLCP behaves on them.
#include <gtest/gtest.h>

#include <algorithm>

#include "proto/dlcp_world.h"

namespace thalweg::proto {
namespace {

WorldOptions two_hosts(Bandwidth line_rate) {
  WorldOptions options;
  options.endpoints[0].peer = "bob";
  options.endpoints[1].peer = "alice";
  for (DlcpOptions& endpoint : options.endpoints) endpoint.rate.line_rate = line_rate;
  options.seed = 1;
  return options;
}

// Adds `count` tensors of `segments` segments of 1400 bytes from end 0 to end 1, one every `gap`.
void add_transfers(WorldOptions& options, std::uint64_t count, std::int64_t segments, double bound,
                   Duration gap) {
  for (std::uint64_t i = 0; i < count; ++i) {
    PlannedTransfer planned;
    planned.spec.key = i;
    planned.spec.elements = segments * 350;
    planned.spec.bound = *LossBound::of(bound);
    planned.send_at = Time() + gap * static_cast<std::int64_t>(i);
    planned.receive_at = planned.send_at;
    options.transfers.push_back(planned);
  }
}

std::uint64_t retransmitted(const World& world) {
  return world.endpoint(0).counters().segments_retransmitted;
}

Duration slowest(const World& world) {
  Duration most;
  for (const TransferResult& result : world.results()) {
    most = std::max(most, result.received->ended - result.received->started);
  }
  return most;
}

TEST(DlcpScenario, reordering__no_stop_causes_a_retransmission) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    WorldOptions options = two_hosts(Bandwidth::gbps(10));
    options.seed = seed;
    options.channels[0].delay = Duration::microseconds(10);
    options.channels[0].jitter = Duration::microseconds(400);
    options.channels[0].control_delay = Duration::microseconds(5);
    add_transfers(options, 20, 20, 0, Duration::microseconds(300));
    World world(options);
    ASSERT_EQ(world.run(), "");
    EXPECT_GT(world.overtaken(), 100U) << "the stops must have overtaken data";
    EXPECT_EQ(retransmitted(world), 0U);
  }
}

TEST(DlcpScenario, long_queue__no_stop_causes_a_retransmission) {
  WorldOptions options = two_hosts(Bandwidth::gbps(10));
  options.channels[0].bottleneck = Bandwidth::gbps(1);
  add_transfers(options, 4, 750, 0, Duration::milliseconds(15));
  World world(options);
  ASSERT_EQ(world.run(), "");
  EXPECT_GT(world.overtaken(), 1000U);
  EXPECT_EQ(retransmitted(world), 0U);
}

// Four tensors in queue 7, and one in queue 1 behind each, which overtakes it at the bottleneck.
WorldOptions two_queues() {
  WorldOptions options = two_hosts(Bandwidth::gbps(10));
  options.channels[0].bottleneck = Bandwidth::gbps(1);
  options.channels[0].strict_priority = true;
  options.channels[0].stop_copies = true;
  add_transfers(options, 8, 400, 0, Duration::milliseconds(4));
  for (std::size_t i = 0; i < options.transfers.size(); ++i) {
    options.transfers[i].tags = SegmentTag{static_cast<std::uint8_t>(i % 2 == 0 ? 7 : 1)};
  }
  return options;
}

TEST(DlcpScenario, strict_priority__overtaking_is_not_taken_for_loss) {
  World world(two_queues());
  ASSERT_EQ(world.run(), "");
  EXPECT_GT(world.overtaken(), 500U);
  EXPECT_EQ(retransmitted(world), 0U);
}

TEST(DlcpScenario, strict_priority__a_loss_is_repaired_soon_and_nothing_else_is_sent) {
  WorldOptions options = two_queues();
  World clean(options);
  ASSERT_EQ(clean.run(), "");
  options.channels[0].loss = 0.005;
  for (options.seed = 0; options.seed < 20; ++options.seed) {
    SCOPED_TRACE(options.seed);
    World lossy(options);
    ASSERT_EQ(lossy.run(), "");
    EXPECT_LE(retransmitted(lossy), lossy.lost()) << "copies of stops are lost as well";
    // What is sent again may wait for an urgent tensor and for one of its own queue, 5 ms each.
    EXPECT_LT(slowest(lossy), slowest(clean) + Duration::milliseconds(11));
  }
}

TEST(DlcpScenario, loss_within_the_bound__nothing_is_sent_twice) {
  WorldOptions options = two_hosts(Bandwidth::gbps(1));
  options.channels[0].loss = 0.005;
  add_transfers(options, 50, 750, 0.05, Duration::milliseconds(10));
  World world(options);
  ASSERT_EQ(world.run(), "");
  EXPECT_GT(world.lost(), 100U);
  EXPECT_EQ(retransmitted(world), 0U);
  // 1502 bytes per packet on the line, and a round trip of 40 µs.
  EXPECT_LT(slowest(world), Duration::microseconds(9100));
}

TEST(DlcpScenario, exact_under_loss__a_few_round_trips_longer_than_without) {
  WorldOptions options = two_hosts(Bandwidth::gbps(1));
  add_transfers(options, 50, 750, 0, Duration::milliseconds(20));
  World clean(options);
  ASSERT_EQ(clean.run(), "");
  EXPECT_EQ(retransmitted(clean), 0U);
  options.channels[0].loss = 0.005;
  World lossy(options);
  ASSERT_EQ(lossy.run(), "");
  EXPECT_GT(lossy.lost(), 100U);
  EXPECT_EQ(retransmitted(lossy), lossy.lost()) << "each loss is repaired, and nothing else sent";
  EXPECT_LT(slowest(lossy), slowest(clean) + Duration::milliseconds(1));
}

TEST(DlcpScenario, lost_tail__is_asked_for_though_nothing_shows_its_loss) {
  WorldOptions options = two_hosts(Bandwidth::gbps(1));
  options.lose = [](const wire::DataHeader& header) {
    return header.segment >= 740 && !header.retransmission;
  };
  add_transfers(options, 1, 750, 0, Duration());
  World world(options);
  ASSERT_EQ(world.run(), "");
  EXPECT_EQ(retransmitted(world), 10U);
  EXPECT_LT(slowest(world), Duration::milliseconds(10));
}

TEST(DlcpScenario, black_hole__asks_ever_less_often_until_the_deadline) {
  WorldOptions options = two_hosts(Bandwidth::gbps(10));
  options.channels[0].loss = 1;
  add_transfers(options, 1, 100, 0.5, Duration());
  options.transfers[0].spec.deadline = Duration::milliseconds(1000);
  World world(options);
  ASSERT_EQ(world.run(), "");
  EXPECT_FALSE(world.results()[0].received->ok());
  EXPECT_FALSE(world.results()[0].sent->ok());
  // The receiver asks after 1, 2, 4, … 64 ms, and then every 100 ms.
  EXPECT_GE(world.endpoint(1).counters().requests, 10U);
  EXPECT_LE(world.endpoint(1).counters().requests, 20U);
}

TEST(DlcpScenario, slow_path__the_rate_comes_down_to_what_gets_through) {
  WorldOptions options = two_hosts(Bandwidth::gbps(100));
  options.channels[0].bottleneck = Bandwidth::gbps(10);
  add_transfers(options, 1, 20'000, 0, Duration());
  World world(options);
  world.keep_sent();
  ASSERT_EQ(world.run(), "");
  EXPECT_GE(world.endpoint(0).rate_control().decreases(), 3U);
  // After a millisecond the sender sends about as much as gets through, and at most twice that.
  const auto in_window = [&](std::int64_t from_us, std::int64_t to_us) {
    return static_cast<double>(std::ranges::count_if(world.sent(),
                                                     [&](const World::Sent& sent) {
                                                       const double us = sent.at.since_start().us();
                                                       return us >= static_cast<double>(from_us) &&
                                                              us < static_cast<double>(to_us);
                                                     })) *
           1502 * 8 / (static_cast<double>(to_us - from_us) * 1e3);
  };
  EXPECT_GT(in_window(0, 300), 80);
  EXPECT_LT(in_window(1000, 3000), 21);
  EXPECT_GT(in_window(1000, 3000), 8);
}

TEST(DlcpScenario, learnt_capacity__sends_at_what_gets_through) {
  WorldOptions options = two_hosts(Bandwidth::gbps(100));
  options.channels[0].bottleneck = Bandwidth::gbps(10);
  options.endpoints[0].rate.learn_capacity = true;
  options.endpoints[0].rate.congestion_factor = 1.25;
  add_transfers(options, 2, 20'000, 0, Duration::milliseconds(40));
  World world(options);
  ASSERT_EQ(world.run(), "");
  EXPECT_LT(world.endpoint(0).rate_control().line_rate(), Bandwidth::gbps(13));
  // The second starts at the rate that the first has learnt: 24 ms at 10 Gb/s.
  const auto& second = *world.results()[1].received;
  EXPECT_LT(second.ended - second.started, Duration::milliseconds(26));
}

TEST(DlcpScenario, target__takes_all_that_comes_and_waits_for_nothing_lost) {
  WorldOptions options = two_hosts(Bandwidth::gbps(1));
  add_transfers(options, 1, 750, 0.2, Duration());
  World paper(options);
  ASSERT_EQ(paper.run(), "");
  EXPECT_EQ(paper.results()[0].received->arrived, 600) << "done at the bound";

  options.transfers[0].spec.target = LossBound();
  World patient(options);
  ASSERT_EQ(patient.run(), "");
  EXPECT_EQ(patient.results()[0].received->arrived, 750) << "the rest is on its way";

  // The round trip is longer than the three missing segments are worth waiting for.
  options.channels[0].control_delay = Duration::milliseconds(1);
  options.endpoints[1].patience.initial_round_trip = Duration::milliseconds(2);
  options.lose = [](const wire::DataHeader& header) { return header.segment % 300 == 0; };
  World settling(options);
  ASSERT_EQ(settling.run(), "");
  EXPECT_EQ(settling.results()[0].received->arrived, 747);
  EXPECT_EQ(retransmitted(settling), 0U);
}

TEST(DlcpScenario, target__asks_again_where_that_is_worth_the_round_trip) {
  WorldOptions options = two_hosts(Bandwidth::gbps(1));
  add_transfers(options, 1, 750, 0.3, Duration());
  options.transfers[0].spec.target = LossBound();
  options.lose = [](const wire::DataHeader& header) {
    return header.segment >= 600 && header.segment < 700 && !header.retransmission;
  };
  World world(options);
  ASSERT_EQ(world.run(), "");
  EXPECT_EQ(world.results()[0].received->arrived, 750);
  EXPECT_EQ(retransmitted(world), 100U);
}

TEST(DlcpScenario, target__a_stalled_sender_is_not_waited_for_once_the_bound_is_kept) {
  WorldOptions options = two_hosts(Bandwidth::gbps(1));
  add_transfers(options, 2, 750, 0.5, Duration::milliseconds(6));
  options.transfers[0].spec.target = LossBound();
  options.transfers[0].spec.urgency = 1;  // the second goes first, and takes 9 ms
  World world(options);
  ASSERT_EQ(world.run(), "");
  const auto& first = *world.results()[0].received;
  EXPECT_GE(first.arrived, 375);
  EXPECT_LT(first.arrived, 750);
  EXPECT_LT(first.ended - first.started, Duration::milliseconds(13));
}

TEST(DlcpScenario, many_tensors_both_ways__all_arrive_in_any_order_of_starting) {
  WorldOptions options = two_hosts(Bandwidth::gbps(10));
  options.with_bytes = true;
  options.channels[0].loss = options.channels[1].loss = 0.02;
  options.channels[0].duplication = 0.1;
  for (std::uint64_t key = 0; key < 300; ++key) {
    PlannedTransfer planned;
    planned.source = static_cast<int>(key % 2);
    planned.spec.key = key;
    planned.spec.elements = static_cast<std::int64_t>(key * 37 % 3000);
    planned.send_at = Time() + Duration::microseconds(static_cast<std::int64_t>(key * 7 % 300));
    planned.receive_at = Time() + Duration::microseconds(static_cast<std::int64_t>(key * 11 % 300));
    options.transfers.push_back(planned);
  }
  World world(options);
  ASSERT_EQ(world.run(), "");
  for (const TransferResult& result : world.results()) {
    EXPECT_TRUE(result.sent->ok());
    EXPECT_EQ(result.received->fraction(), 1.0);
  }
}

}  // namespace
}  // namespace thalweg::proto
