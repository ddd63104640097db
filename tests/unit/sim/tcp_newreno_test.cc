// Exact traces of the shared sender, with NewReno's window rules.
#include <gtest/gtest.h>

#include "sim/tcp_harness.h"

namespace thalweg::sim {
namespace {

// A sender in congestion avoidance with a window of `size` segments, all of them sent.
SenderByHand avoiding(double size, KeyValues given = {}) {
  given.emplace("warm", "avoidance");
  return {"newreno", given, 1000, size};
}

TEST(TcpNewReno, slow_start__doubles_every_round_trip) {
  SenderByHand flow("newreno", {{"iw", "2"}}, 100);
  EXPECT_EQ(flow.send(), range(0, 2));
  flow.ack(1);
  EXPECT_EQ(flow.send(), (Numbers{2, 3}));
  flow.ack(2);
  EXPECT_EQ(flow.send(), (Numbers{4, 5}));
  EXPECT_DOUBLE_EQ(flow.window(), 4);
  for (std::uint64_t next = 3; next <= 6; ++next) {
    flow.ack(next);
    EXPECT_EQ(flow.send(), (Numbers{2 * next, 2 * next + 1}));
  }
  EXPECT_DOUBLE_EQ(flow.window(), 8);
}

TEST(TcpNewReno, slow_start__an_ack_of_many_segments_opens_one) {
  SenderByHand flow("newreno", {}, 100);
  EXPECT_EQ(flow.send(), range(0, 10));
  flow.ack(5);
  EXPECT_DOUBLE_EQ(flow.window(), 11);
  EXPECT_EQ(flow.send(), range(10, 16));
}

TEST(TcpNewReno, avoidance__about_a_segment_a_window) {
  SenderByHand flow = avoiding(10);
  EXPECT_EQ(flow.send(), range(0, 10));
  double expected = 10;
  for (std::uint64_t next = 1; next <= 10; ++next) {
    flow.ack(next);
    flow.send();
    expected += 1 / expected;
    EXPECT_DOUBLE_EQ(flow.window(), expected);
  }
  EXPECT_NEAR(flow.window(), 11, 0.05);
}

TEST(TcpNewReno, growth__not_when_the_flow_has_nothing_to_send) {
  SenderByHand flow("newreno", {}, 5);
  EXPECT_EQ(flow.send(), range(0, 5));
  for (std::uint64_t next = 1; next <= 5; ++next) flow.ack(next);
  EXPECT_DOUBLE_EQ(flow.window(), 10);
  EXPECT_TRUE(flow.sender().done());
  EXPECT_FALSE(flow.sender().next_timeout().has_value());
}

// Window 10, segment 0 lost, 1 to 9 arrive. Two duplicates allow new segments (RFC 3042); the third
// halves the window to 5 and sends 0 again. With 12 outstanding and 5 + 3 allowed, nothing is sent
// until duplicates have inflated the allowance past 12.
TEST(TcpNewReno, fast_retransmit__one_loss) {
  SenderByHand flow = avoiding(10);
  EXPECT_EQ(flow.send(), range(0, 10));
  EXPECT_EQ(flow.duplicates(0, 2), (Numbers{10, 11}));
  EXPECT_EQ(flow.duplicates(0, 1), (Numbers{0}));
  EXPECT_TRUE(flow.last().retransmission);
  EXPECT_DOUBLE_EQ(flow.window(), 5);
  // The allowance is 8, then 9, 10, … with each of the six other duplicates of 1 to 9 and the two
  // of 10 and 11; 12 are outstanding.
  EXPECT_EQ(flow.duplicates(0, 4), Numbers{});
  EXPECT_EQ(flow.duplicates(0, 4), (Numbers{12, 13, 14, 15}));
  flow.ack(12);
  // 4 outstanding: min(5, 4 + 1).
  EXPECT_DOUBLE_EQ(flow.window(), 5);
  EXPECT_EQ(flow.send(), (Numbers{16}));
  EXPECT_EQ(flow.sender().counters().retransmissions, 1U);
  EXPECT_EQ(flow.sender().counters().timeouts, 0U);
  // Above the threshold now: linear.
  flow.ack(13);
  EXPECT_DOUBLE_EQ(flow.window(), 5.2);
}

// Segments 0, 3 and 6 of a window of 10 are lost: each partial acknowledgement sends the next hole.
TEST(TcpNewReno, fast_recovery__a_hole_each_partial_ack) {
  SenderByHand flow = avoiding(10, {{"limited_transmit", "off"}});
  EXPECT_EQ(flow.send(), range(0, 10));
  EXPECT_EQ(flow.duplicates(0, 3), (Numbers{0}));
  EXPECT_DOUBLE_EQ(flow.window(), 5);
  EXPECT_EQ(flow.duplicates(0, 3), (Numbers{10}));  // 5 + 6 > 10 outstanding
  flow.ack(3, false, true);
  // Inflation 6 - 3 + 1 = 4: 9 may be outstanding, 8 are.
  EXPECT_EQ(flow.send(), (Numbers{3, 11}));
  flow.ack(6, false, true);
  EXPECT_EQ(flow.send(), (Numbers{6, 12}));
  EXPECT_DOUBLE_EQ(flow.window(), 5);
  flow.ack(10, false, true);
  EXPECT_DOUBLE_EQ(flow.window(), 4);  // 3 outstanding and one more
  EXPECT_EQ(flow.send(), (Numbers{13}));
  EXPECT_EQ(flow.sender().counters().retransmissions, 3U);
  flow.ack(11);
  EXPECT_DOUBLE_EQ(flow.window(), 5);  // slow start up to the threshold
}

TEST(TcpNewReno, fast_recovery__only_the_first_partial_ack_restarts_the_timer) {
  SenderByHand flow = avoiding(10);
  flow.send();
  flow.duplicates(0, 3);
  flow.wait(Duration::milliseconds(1));
  flow.ack(3, false, true);
  const Time first = *flow.sender().next_timeout();
  EXPECT_EQ(first, flow.now() + Duration::milliseconds(10));
  flow.wait(Duration::milliseconds(1));
  flow.ack(6, false, true);
  EXPECT_EQ(*flow.sender().next_timeout(), first);
}

TEST(TcpNewReno, duplicates__of_retransmissions_mean_nothing) {
  SenderByHand flow = avoiding(10);
  flow.send();
  for (int i = 0; i < 5; ++i) flow.ack(0, false, true);
  EXPECT_EQ(flow.send(), Numbers{});
  EXPECT_DOUBLE_EQ(flow.window(), 10);
}

TEST(TcpNewReno, dupacks__threshold_is_a_parameter) {
  SenderByHand patient = avoiding(10, {{"dupacks", "5"}, {"limited_transmit", "off"}});
  patient.send();
  EXPECT_EQ(patient.duplicates(0, 4), Numbers{});
  EXPECT_EQ(patient.duplicates(0, 1), (Numbers{0}));
  SenderByHand deaf = avoiding(10, {{"dupacks", "0"}});
  deaf.send();
  EXPECT_EQ(deaf.duplicates(0, 9), Numbers{});
}

// A window of 8 is lost entirely: everything is sent again, first one segment, then in slow start
// to 4, then linearly.
TEST(TcpNewReno, timeout__starts_over_from_the_first_missing) {
  SenderByHand flow = avoiding(8);
  EXPECT_EQ(flow.send(), range(0, 8));
  EXPECT_EQ(flow.until_timeout(), Duration::milliseconds(10));
  flow.time_out();
  EXPECT_DOUBLE_EQ(flow.window(), 1);
  EXPECT_EQ(flow.send(), (Numbers{0}));
  EXPECT_TRUE(flow.last().retransmission);
  flow.ack(1, false, true);
  EXPECT_EQ(flow.send(), (Numbers{1, 2}));
  flow.ack(2, false, true);
  EXPECT_EQ(flow.send(), (Numbers{3, 4}));
  flow.ack(3, false, true);
  EXPECT_EQ(flow.send(), (Numbers{5, 6}));
  EXPECT_DOUBLE_EQ(flow.window(), 4);
  flow.ack(4, false, true);
  EXPECT_DOUBLE_EQ(flow.window(), 4.25);
  EXPECT_EQ(flow.send(), (Numbers{7}));
  EXPECT_TRUE(flow.last().retransmission);
  flow.ack(5, false, true);
  EXPECT_EQ(flow.send(), (Numbers{8}));
  EXPECT_FALSE(flow.last().retransmission);
}

TEST(TcpNewReno, timeout__an_ack_may_leap_over_what_had_arrived) {
  SenderByHand flow = avoiding(8);
  flow.send();
  flow.time_out();
  EXPECT_EQ(flow.send(), (Numbers{0}));
  flow.ack(8, false, true);
  EXPECT_DOUBLE_EQ(flow.window(), 2);
  EXPECT_EQ(flow.send(), (Numbers{8, 9}));
}

TEST(TcpNewReno, timeout__doubles_up_to_the_largest_and_falls_back) {
  SenderByHand flow = avoiding(8, {{"rto_max", "50ms"}});
  flow.send();
  for (const std::int64_t ms : {10, 20, 40, 50, 50}) {
    EXPECT_EQ(flow.until_timeout(), Duration::milliseconds(ms));
    flow.time_out();
    EXPECT_EQ(flow.send(), (Numbers{0}));
  }
  EXPECT_EQ(flow.sender().counters().timeouts, 5U);
  flow.ack(1, false, true);
  EXPECT_EQ(flow.send(), (Numbers{1, 2}));
  EXPECT_EQ(flow.until_timeout(), Duration::milliseconds(10));
  // The threshold is half of the window at the first timeout only.
  for (const std::uint64_t next : {2U, 3U}) {
    flow.ack(next, false, true);
    flow.send();
  }
  EXPECT_DOUBLE_EQ(flow.window(), 4);
  flow.ack(4, false, true);
  EXPECT_DOUBLE_EQ(flow.window(), 4.25);
}

// RFC 6298: 100 ms, then 180 ms: variation 3/4 * 50 + 1/4 * 80 = 57.5, mean 110.
TEST(TcpNewReno, timeout__follows_the_round_trip) {
  SenderByHand flow("newreno", {{"rto_initial", "1s"}}, 100);
  flow.send();
  EXPECT_EQ(flow.until_timeout(), Duration::milliseconds(1000));
  flow.wait(Duration::milliseconds(100));
  flow.set_round_trip(Duration::milliseconds(100));
  flow.ack(1);
  EXPECT_EQ(flow.until_timeout(), Duration::milliseconds(300));
  flow.set_round_trip(Duration::milliseconds(180));
  flow.wait(Duration::milliseconds(80));
  flow.ack(2);
  EXPECT_EQ(flow.until_timeout(), Duration::milliseconds(110 + 230));
}

TEST(TcpNewReno, timeout__not_before_its_time) {
  SenderByHand flow = avoiding(8);
  flow.send();
  flow.wait(Duration::milliseconds(9));
  flow.sender().on_timeout(flow.now());
  EXPECT_EQ(flow.sender().counters().timeouts, 0U);
  EXPECT_DOUBLE_EQ(flow.window(), 8);
}

// Duplicates caused by originals from before a timeout do not start a fast retransmit.
TEST(TcpNewReno, duplicates__not_counted_below_what_a_timeout_gave_up) {
  SenderByHand flow = avoiding(8);
  flow.send();
  flow.time_out();
  flow.send();
  EXPECT_EQ(flow.duplicates(0, 6), Numbers{});
  flow.ack(8, false, true);
  EXPECT_EQ(flow.send(), (Numbers{8, 9}));
  // Above that point they count.
  for (std::uint64_t next = 9; next <= 12; ++next) {
    flow.ack(next);
    flow.send();
  }
  EXPECT_EQ(flow.duplicates(12, 3).back(), 12U);
  EXPECT_TRUE(flow.last().retransmission);
}

TEST(TcpNewReno, window__warm_start_and_largest) {
  SenderByHand warm("newreno", {}, 1000, 30);
  EXPECT_EQ(warm.send().size(), 30U);
  warm.ack(1);
  EXPECT_DOUBLE_EQ(warm.window(), 31);
  SenderByHand capped("newreno", {{"max_window", "14600B"}}, 1000, 30);
  EXPECT_EQ(capped.send().size(), 10U);
  capped.ack(1);
  EXPECT_EQ(capped.send(), (Numbers{10}));
}

TEST(TcpNewReno, segments__last_one_is_short) {
  const auto factory = transport_or_fail("newreno", {});
  const auto sender = factory->make_sender(3000, std::nullopt);
  SegmentToSend segment;
  sender->start(Time());
  for (const std::uint32_t payload : {1460U, 1460U, 80U}) {
    ASSERT_TRUE(sender->poll_transmit(Time(), segment));
    EXPECT_EQ(segment.payload, payload);
    EXPECT_EQ(segment.ecn, Ecn::kNotCapable);
  }
  EXPECT_FALSE(sender->poll_transmit(Time(), segment));
}

// Over a real pipe the window that overflows the buffer is cut, and the flow completes at nearly
// the link's rate without a timeout (with a buffer of one bandwidth-delay product).
TEST(TcpNewReno, pipe__one_flow_fills_the_line) {
  const auto factory = transport_or_fail("newreno", {});
  PipeOptions options;
  options.buffer = Bytes(125'000);
  // Loses one segment of a window in flight, so that slow start ends without a burst.
  options.lose = [](const SegmentToSend&, std::uint64_t number) { return number == 150; };
  Pipe pipe(*factory, options);
  pipe.run({20'000'000}, Time::at(Duration::milliseconds(1000)));
  ASSERT_TRUE(pipe.all_done());
  EXPECT_EQ(pipe.sender(0).counters().timeouts, 0U);
  EXPECT_GT(pipe.drops(), 1U);
  const double ideal_ms = 20e6 * (1500.0 / 1460) * 8 / 10e9 * 1e3;
  EXPECT_LT(pipe.now().since_start().ms(), ideal_ms * 1.08 + 10);
}

}  // namespace
}  // namespace thalweg::sim
