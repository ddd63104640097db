#include "proto/dlcp/rate_control.h"

#include <gtest/gtest.h>

#include <cmath>

namespace thalweg::proto {
namespace {

// The report of 200 µs in which the sender sent at one rate and the receiver received at another.
wire::ReportMessage report(double sent_gbps, double received_gbps) {
  constexpr double kPacketBits = 1000 * 8;
  wire::ReportMessage message;
  message.first_sent_us = 0xffffffff - 50;  // across the wrap of the clock
  message.last_sent_us = message.first_sent_us + 200;
  message.received_window_ns = 200'000;
  message.packets_sent = static_cast<std::uint32_t>(std::lround(sent_gbps * 200e3 / kPacketBits));
  message.packets_received =
      static_cast<std::uint32_t>(std::lround(received_gbps * 200e3 / kPacketBits));
  message.bytes_received = std::uint64_t{message.packets_received} * 900;
  return message;
}

RateControlOptions at_10g() {
  RateControlOptions options;
  options.line_rate = Bandwidth::gbps(10);
  return options;
}

class RateControlTest : public testing::Test {
 protected:
  void hear(double sent_gbps, double received_gbps) {
    control_.on_report(report(sent_gbps, received_gbps));
  }
  [[nodiscard]] double gbps() const { return static_cast<double>(control_.rate().bps()) * 1e-9; }

  RateControl control_{at_10g(), Bytes(100)};
};

TEST_F(RateControlTest, on_report__starts_at_line_rate_and_stays_there) {
  EXPECT_DOUBLE_EQ(gbps(), 10);
  hear(10, 10);
  hear(10, 5.1);
  EXPECT_DOUBLE_EQ(gbps(), 10);
  EXPECT_EQ(control_.state(), RateControl::State::kLineRate);
}

TEST_F(RateControlTest, on_report__halves_when_less_than_half_arrives) {
  hear(10, 4.9);
  EXPECT_DOUBLE_EQ(gbps(), 5);
  EXPECT_EQ(control_.state(), RateControl::State::kAvoidance);
  hear(5, 2.4);
  EXPECT_DOUBLE_EQ(gbps(), 2.5);
  EXPECT_EQ(control_.decreases(), 2U);
}

TEST_F(RateControlTest, on_report__adds_five_percent_of_the_line_up_to_the_line) {
  hear(10, 1);
  for (int i = 1; i <= 10; ++i) {
    hear(5, 5);
    EXPECT_NEAR(gbps(), 5 + 0.5 * i, 1e-6);
  }
  hear(10, 10);
  EXPECT_DOUBLE_EQ(gbps(), 10);
}

TEST_F(RateControlTest, on_report__news_from_before_a_halving_does_not_halve_again) {
  hear(10, 4);
  EXPECT_DOUBLE_EQ(gbps(), 5);
  hear(10, 4);  // 5 is no more than twice 4
  EXPECT_DOUBLE_EQ(gbps(), 5.5);
}

TEST_F(RateControlTest, on_report__sender_that_was_idle_is_not_congested) {
  hear(0.4, 0.4);
  EXPECT_DOUBLE_EQ(gbps(), 10);
}

TEST_F(RateControlTest, on_report__never_below_the_least) {
  wire::ReportMessage next_to_nothing = report(10, 0.04);
  next_to_nothing.received_window_ns *= 1000;
  for (int i = 0; i < 100; ++i) control_.on_report(next_to_nothing);
  EXPECT_NEAR(gbps(), 10.0 / 256, 1e-6);
}

TEST_F(RateControlTest, on_report__without_a_window_says_nothing) {
  wire::ReportMessage empty = report(10, 1);
  empty.last_sent_us = empty.first_sent_us;
  control_.on_report(empty);
  empty = report(10, 1);
  empty.received_window_ns = 0;
  control_.on_report(empty);
  empty = report(10, 1);
  empty.packets_received = 0;
  control_.on_report(empty);
  empty = report(10, 1);
  empty.last_sent_us = empty.first_sent_us - 200;
  control_.on_report(empty);
  EXPECT_DOUBLE_EQ(gbps(), 10);
}

// A learnt rate must be able to grow even if it is so low that a burst outlasts the report period.
TEST_F(RateControlTest, on_report__who_learns_compares_packets_of_one_moment_with_the_rate) {
  RateControlOptions options;
  options.learn_capacity = true;
  RateControl learning(options, Bytes(0));
  wire::ReportMessage slow = report(10, 0.1);
  learning.on_report(slow);
  const double learnt = learning.line_rate().bytes_per_second();
  EXPECT_LT(learnt * 8, 1e9);
  wire::ReportMessage burst = report(10, 10);
  burst.last_sent_us = burst.first_sent_us;
  for (int i = 0; i < 20; ++i) learning.on_report(burst);
  EXPECT_GT(learning.line_rate().bytes_per_second(), learnt * 1.5);
}

TEST_F(RateControlTest, on_retransmission__line_rate_again) {
  hear(10, 1);
  control_.on_retransmission();
  EXPECT_DOUBLE_EQ(gbps(), 10);
  EXPECT_EQ(control_.state(), RateControl::State::kLineRate);
}

TEST_F(RateControlTest, on_transfer__line_rate_again_only_where_set) {
  hear(10, 1);
  control_.on_transfer();
  EXPECT_DOUBLE_EQ(gbps(), 10);
  RateControlOptions options = at_10g();
  options.reset_on_transfer = false;
  options.reset_on_retransmission = false;
  RateControl other(options, Bytes(100));
  other.on_report(report(10, 1));
  other.on_transfer();
  other.on_retransmission();
  EXPECT_EQ(other.rate(), Bandwidth::gbps(5));
}

TEST_F(RateControlTest, on_report__every_constant_is_an_option) {
  RateControlOptions options = at_10g();
  options.congestion_factor = 1.5;
  options.decrease_factor = 0.8;
  options.increase_step = 0.1;
  RateControl other(options, Bytes(100));
  other.on_report(report(10, 6));
  EXPECT_EQ(other.rate(), Bandwidth::gbps(8));
  other.on_report(report(8, 8));
  EXPECT_EQ(other.rate(), Bandwidth::gbps(9));
}

TEST_F(RateControlTest, on_report__learnt_capacity_stands_for_the_line) {
  RateControlOptions options = at_10g();
  options.learn_capacity = true;
  options.congestion_factor = 1.2;
  RateControl other(options, Bytes(100));
  const auto rate = [&] { return static_cast<double>(other.rate().bps()) * 1e-9; };
  other.on_report(report(10, 2));
  EXPECT_NEAR(rate(), 2, 0.05);
  other.on_retransmission();
  EXPECT_NEAR(rate(), 2, 0.05);  // not 10
  other.on_report(report(2, 2));
  EXPECT_NEAR(rate(), 2.1, 0.05);
  for (int i = 0; i < 100; ++i) other.on_report(report(10, 10));
  EXPECT_NEAR(rate(), 10, 1e-6);  // back at the line rate, once the path carries it
}

TEST(Pacer, on_sent__holds_the_rate_and_catches_up_one_burst) {
  const Bandwidth rate = Bandwidth::gbps(8);  // one byte per nanosecond
  const Bytes burst(10'000);
  const auto us = [](std::int64_t n) { return Time() + Duration::microseconds(n); };
  Pacer pacer;
  pacer.on_sent(us(100), Bytes(10'000), burst, rate);
  EXPECT_EQ(pacer.free_at(), us(100));  // one burst of credit, since nothing was sent for long
  pacer.on_sent(us(100), Bytes(10'000), burst, rate);
  EXPECT_EQ(pacer.free_at(), us(110));
  pacer.on_sent(us(113), Bytes(10'000), burst, rate);
  EXPECT_EQ(pacer.free_at(), us(120));  // makes up for the 3 µs
}

TEST(Pacer, on_rate_change__scales_what_is_left_to_wait) {
  const auto us = [](std::int64_t n) { return Time() + Duration::microseconds(n); };
  Pacer pacer;
  pacer.on_sent(us(0), Bytes(8000), Bytes(0), Bandwidth::gbps(1));
  EXPECT_EQ(pacer.free_at(), us(64));
  pacer.on_rate_change(us(32), Bandwidth::gbps(1), Bandwidth::gbps(8));
  EXPECT_EQ(pacer.free_at(), us(36));
  pacer.on_rate_change(us(40), Bandwidth::gbps(8), Bandwidth::gbps(1));
  EXPECT_EQ(pacer.free_at(), us(36));
}

}  // namespace
}  // namespace thalweg::proto
