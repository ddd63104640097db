// The priorities that PIAS and pFabric give packets, and how pFabric recovers.
#include <gtest/gtest.h>

#include <algorithm>

#include "sim/tcp_harness.h"

namespace thalweg::sim {
namespace {

using PriorityNumbers = std::vector<std::uint64_t>;

TEST(TcpPias, priority__falls_at_the_thresholds) {
  const auto factory =
      transport_or_fail("pias", {{"iw", "20"}, {"thresholds", "2920B, 5000B/14600B"}});
  const auto sender = factory->make_sender(29'200, std::nullopt);
  sender->start(Time());
  SegmentToSend segment;
  std::vector<int> priorities;
  while (sender->poll_transmit(Time(), segment)) priorities.push_back(segment.priority);
  // Segment i follows i * 1460 bytes: 2920 are sent before segment 2, 5000 before 4, 14600
  // before 10.
  const std::vector<int> expected{0, 0, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3};
  EXPECT_EQ(priorities, expected);
  EXPECT_EQ(segment.ecn, Ecn::kCapable);
  EXPECT_EQ(factory->ack_priority(), 0);
}

TEST(TcpPias, priority__of_a_retransmission_is_that_of_the_flow) {
  SenderByHand flow("pias", {{"thresholds", "2920B"}}, 100);
  flow.send();
  flow.time_out();
  EXPECT_EQ(flow.send(), (PriorityNumbers{0}));
  EXPECT_EQ(flow.last().priority, 1);
}

TEST(TcpPias, promote_after__a_starved_flow_counts_as_new) {
  SenderByHand flow("pias", {{"thresholds", "2920B"}, {"promote_after", "2"}}, 100);
  flow.send();
  flow.ack(4);
  EXPECT_EQ(flow.send().size(), 5U);
  EXPECT_EQ(flow.last().priority, 1);
  flow.time_out();
  flow.send();
  EXPECT_EQ(flow.last().priority, 1);
  flow.time_out();
  EXPECT_EQ(flow.send(), (PriorityNumbers{4}));
  EXPECT_EQ(flow.last().priority, 0);
  flow.ack(5, false, true);
  EXPECT_EQ(flow.send(), (PriorityNumbers{5, 6}));
  EXPECT_EQ(flow.last().priority, 1);
}

TEST(TcpPias, thresholds__each_priority_carries_an_equal_share) {
  // A single size gives equal slices of it.
  EXPECT_EQ(pias_thresholds({Bytes(800)}),
            (std::vector<Bytes>{Bytes(100), Bytes(200), Bytes(300), Bytes(400), Bytes(500),
                                Bytes(600), Bytes(700)}));
  // 100 and 900, two levels: half of 1000 bytes is 100 of each and 300 more of the longer.
  EXPECT_EQ(pias_thresholds({Bytes(900), Bytes(100)}, 2), (std::vector<Bytes>{Bytes(400)}));
  // The levels are too small to tell apart.
  EXPECT_EQ(pias_thresholds({Bytes(1), Bytes(1)}), (std::vector<Bytes>{Bytes(1)}));
}

TEST(TcpPias, thresholds__random_sizes_split_evenly) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Prng prng(seed);
    std::vector<Bytes> sizes(1 + prng.below(50));
    std::int64_t total = 0;
    for (Bytes& size : sizes) {
      size = Bytes(static_cast<std::int64_t>(1000 + prng.below(1U << prng.below(24))));
      total += size.count();
    }
    const std::vector<Bytes> thresholds = pias_thresholds(sizes);
    ASSERT_EQ(thresholds.size(), 7U);
    for (std::size_t i = 0; i < thresholds.size(); ++i) {
      const auto below = [&](Bytes limit) {
        std::int64_t sum = 0;
        for (const Bytes size : sizes) sum += std::min(size, limit).count();
        return sum * 8;
      };
      const std::int64_t wanted = total * static_cast<std::int64_t>(i + 1);
      EXPECT_GE(below(thresholds[i]), wanted);
      EXPECT_LT(below(thresholds[i] - Bytes(1)), wanted);
    }
  }
}

TEST(TcpPfabric, scale__bdp_and_three_round_trips) {
  // pFabric's own set-up: 10 Gb/s, 14.6 us, 12 packets, 36 KB of buffer, 45 us.
  const PfabricScale scale =
      pfabric_scale(Bandwidth::gbps(10), Duration::nanoseconds(14'600), Bytes(1500));
  EXPECT_EQ(scale.initial_window, 13U);
  EXPECT_EQ(scale.port_buffer, Bytes(36'500));
  EXPECT_EQ(scale.rto, Duration::nanoseconds(43'800));
  // The default is DLCP's set-up: 100 Gb/s, 85.2 us.
  const auto factory = transport_or_fail("pfabric", {});
  EXPECT_NE(factory->describe().find("iw=710 rto=255600ns"), std::string::npos)
      << factory->describe();
}

TEST(TcpPfabric, rank__is_what_is_left) {
  SenderByHand flow("pfabric", {{"iw", "4"}}, 10);
  EXPECT_EQ(flow.send(), (PriorityNumbers{0, 1, 2, 3}));
  EXPECT_EQ(flow.last().rank_in_queue, 14600U);
  EXPECT_EQ(flow.last().ecn, Ecn::kNotCapable);
  flow.ack(1);
  EXPECT_EQ(flow.send(), (PriorityNumbers{4}));
  EXPECT_EQ(flow.last().rank_in_queue, 13140U);
}

TEST(TcpPfabric, rank__of_a_huge_flow_saturates) {
  SenderByHand flow("pfabric", {{"iw", "4"}}, 10'000'000);
  flow.send();
  EXPECT_EQ(flow.last().rank_in_queue, 0xffffffffU);
}

TEST(TcpPfabric, window__stays_and_duplicates_mean_nothing) {
  SenderByHand flow("pfabric", {{"iw", "4"}}, 100);
  flow.send();
  for (std::uint64_t next = 1; next <= 20; ++next) {
    flow.ack(next);
    EXPECT_EQ(flow.send(), (PriorityNumbers{next + 3}));
  }
  EXPECT_DOUBLE_EQ(flow.window(), 4);
  EXPECT_EQ(flow.duplicates(20, 10), PriorityNumbers{});
}

TEST(TcpPfabric, timeout__fixed_and_slow_start) {
  SenderByHand flow("pfabric", {{"iw", "8"}, {"rto", "250us"}}, 100);
  flow.send();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(flow.until_timeout(), Duration::microseconds(250));
    flow.time_out();
    EXPECT_EQ(flow.send(), (PriorityNumbers{0}));
  }
  // Everything else had arrived, so the full window is back at once.
  flow.ack(8, false, true);
  EXPECT_DOUBLE_EQ(flow.window(), 8);
  EXPECT_EQ(flow.send().size(), 8U);

  SenderByHand whole("pfabric", {{"iw", "8"}, {"after_timeout", "full_window"}}, 100);
  whole.send();
  whole.time_out();
  EXPECT_EQ(whole.send().size(), 8U);
}

TEST(TcpPfabric, probe__after_five_timeouts_a_byte_at_a_time) {
  SenderByHand flow("pfabric", {{"iw", "8"}}, 100);
  flow.send();
  for (int i = 0; i < 4; ++i) {
    flow.time_out();
    EXPECT_EQ(flow.send(), (PriorityNumbers{0}));
    EXPECT_EQ(flow.last().payload, 1460U);
  }
  for (int i = 0; i < 3; ++i) {
    flow.time_out();
    EXPECT_EQ(flow.send(), (PriorityNumbers{0}));
    EXPECT_EQ(flow.last().payload, 1U);
  }
  Acknowledgement ack;
  ack.next_expected = 1;
  ack.answered_sent = flow.now();
  ack.answered_retransmission = true;
  flow.sender().on_ack(flow.now(), ack);
  SegmentToSend segment;
  ASSERT_TRUE(flow.sender().poll_transmit(flow.now(), segment));
  EXPECT_EQ(segment.sequence, 1U);
  EXPECT_EQ(segment.payload, 1459U);
}

}  // namespace
}  // namespace thalweg::sim
