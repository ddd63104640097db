#include "proto/dlcp/path_meter.h"

#include <gtest/gtest.h>

namespace thalweg {
namespace {

Time us(std::int64_t n) { return Time() + Duration::microseconds(n); }

class PathMeterTest : public testing::Test {
 protected:
  // A packet that left at `sent` by the sender's clock, which is far from ours.
  void packet(std::uint64_t sequence, std::int64_t sent, std::int64_t arrived, bool marked = false,
              std::uint32_t path = 0) {
    DataHeader header;
    header.sequence = sequence;
    header.sent_us = clock_ + static_cast<std::uint32_t>(sent);
    header.length = 1000;
    meter_.on_packet(header, marked, path, us(arrived));
  }
  // Packets 0 … count−1, one every `gap` µs, `delay` on the way.
  void stream(std::uint64_t count, std::int64_t gap, std::int64_t delay) {
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto sent = static_cast<std::int64_t>(i) * gap;
      packet(i, sent, sent + delay);
    }
  }
  [[nodiscard]] PathMeter::Stopped stop(std::uint64_t end_sequence, std::int64_t last_sent,
                                        std::int64_t arrived) const {
    PathMeter::Stopped stopped;
    stopped.stop.end_sequence = end_sequence;
    stopped.stop.last_sent_us = clock_ + static_cast<std::uint32_t>(last_sent);
    stopped.at = us(arrived);
    return stopped;
  }

  std::uint32_t clock_ = 0xfffffff0;  // wraps soon
  GraceOptions grace_;
  RateControlOptions rate_;
  PathMeter meter_{grace_, rate_};
};

TEST_F(PathMeterTest, take_report__counts_by_path_once_there_are_several) {
  stream(30, 10, 50);
  const auto one = meter_.take_report();
  ASSERT_TRUE(one);
  EXPECT_EQ(one->paths, 0);
  for (std::uint64_t i = 30; i < 90; ++i) {
    const auto sent = static_cast<std::int64_t>(i) * 10;
    packet(i, sent, sent + 50, false, static_cast<std::uint32_t>(i % 3));
    if (meter_.report_due()) break;
  }
  const auto three = meter_.take_report();
  ASSERT_TRUE(three);
  EXPECT_EQ(three->paths, 3);
  const std::uint32_t sum =
      three->path_packets[0] + three->path_packets[1] + three->path_packets[2];
  EXPECT_EQ(sum, three->packets_received);
  EXPECT_GE(three->path_packets[1], 3U);
}

TEST_F(PathMeterTest, take_report__sent_and_received_in_matching_windows) {
  std::optional<ReportMessage> report;
  for (std::uint64_t i = 0; !report; i += 2) {
    const auto sent = static_cast<std::int64_t>(i) * 5;
    packet(i, sent, 2 * sent + 100, i == 4);
    report = meter_.take_report();
    ASSERT_LT(i, 100U);
  }
  // Packets 0, 2, …, 20 sent at 0 … 100 and here at 100 … 300: the first is the edge.
  EXPECT_EQ(report->packets_sent, 20U);
  EXPECT_EQ(report->packets_received, 10U);
  EXPECT_EQ(report->packets_marked, 1U);
  EXPECT_EQ(report->bytes_received, 10'000U);
  EXPECT_EQ(report->first_sent_us, clock_);
  EXPECT_EQ(report->last_sent_us, clock_ + 100);
  EXPECT_EQ(report->received_window_ns, 200'000U);
  EXPECT_FALSE(meter_.take_report().has_value());
}

TEST_F(PathMeterTest, take_report__a_silence_is_in_no_window) {
  packet(0, 0, 100);
  packet(1, 10, 110);
  // 5 ms later.
  for (std::uint64_t i = 2; i <= 22; ++i) {
    const auto sent = 5000 + static_cast<std::int64_t>(i) * 10;
    packet(i, sent, sent + 100);
  }
  const auto report = meter_.take_report();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->first_sent_us, clock_ + 5020);
  EXPECT_EQ(report->received_window_ns, 200'000U);
  EXPECT_EQ(report->packets_sent, 20U);
}

TEST_F(PathMeterTest, take_report__waits_for_enough_packets) {
  for (std::uint64_t i = 0; i < 8; ++i) {
    packet(i, static_cast<std::int64_t>(i) * 150, static_cast<std::int64_t>(i) * 150 + 10);
    EXPECT_FALSE(meter_.report_due());
  }
  packet(8, 1200, 1210);
  EXPECT_TRUE(meter_.report_due());
}

TEST_F(PathMeterTest, expected_by__initial_grace_while_nothing_is_known) {
  EXPECT_EQ(meter_.expected_by(stop(10, 90, 500), us(500)), us(500) + grace_.initial);
  stream(8, 10, 100);
  // The last one, sent at 90, would be here at 190; the path is still unknown.
  EXPECT_EQ(meter_.expected_by(stop(10, 90, 150), us(170)), us(190) + grace_.initial);
}

TEST_F(PathMeterTest, expected_by__longest_delay_and_spread_when_known) {
  stream(40, 10, 100);
  packet(40, 400, 530);  // 130 on the way
  const Time expected = meter_.expected_by(stop(50, 490, 540), us(540));
  EXPECT_EQ(expected, us(490 + 130 + 30) + grace_.least);
}

TEST_F(PathMeterTest, expected_by__a_stop_that_comes_late_does_not_wait_for_the_past) {
  stream(40, 10, 100);
  EXPECT_EQ(meter_.expected_by(stop(50, 490, 2000), us(2000)), us(2000) + grace_.least);
}

TEST_F(PathMeterTest, expected_by__a_witness_decides_soon_on_a_path_that_keeps_order) {
  stream(40, 10, 100);
  packet(41, 410, 900);  // a queue has built up, and 40 is lost
  PathMeter::Stopped stopped = stop(42, 410, 450);
  EXPECT_EQ(meter_.expected_by(stopped, us(900)), us(900 + 390) + grace_.least);
  stopped.witnessed = meter_.witness(41, us(900));
  ASSERT_EQ(stopped.witnessed, us(900));
  EXPECT_EQ(meter_.expected_by(stopped, us(900)), us(900) + grace_.least);
}

TEST_F(PathMeterTest, expected_by__a_witness_waits_for_what_it_may_have_overtaken) {
  stream(40, 10, 100);
  packet(41, 410, 510);
  packet(40, 400, 515);  // 15 more on the way than the one that overtook it
  packet(43, 430, 530);
  PathMeter::Stopped stopped = stop(44, 430, 450);
  stopped.witnessed = us(530);
  // 4 · 15 after the witness is later than the longest delay and the spread: 430 + 115 + 15.
  EXPECT_EQ(meter_.expected_by(stopped, us(530)), us(560) + grace_.least);
}

TEST_F(PathMeterTest, expected_by__rounds_that_bring_nothing_wait_longer_up_to_the_most) {
  PathMeter::Stopped stopped = stop(10, 90, 500);
  stopped.empty_rounds = 3;
  EXPECT_EQ(meter_.expected_by(stopped, us(500)), us(500) + grace_.initial * 8);
  stopped.empty_rounds = 4'000'000'000;
  EXPECT_EQ(meter_.expected_by(stopped, us(500)), us(500) + grace_.most);
}

TEST_F(PathMeterTest, expected_by__a_clock_that_makes_no_sense_is_bounded) {
  stream(40, 10, 100);
  const PathMeter::Stopped stopped = stop(50, 1'000'000'000, 500);
  EXPECT_LE(meter_.expected_by(stopped, us(500)), us(500) + grace_.most * 2);
}

TEST_F(PathMeterTest, expected_by__old_delays_are_forgotten) {
  stream(40, 10, 100);
  packet(40, 400, 50'400);  // 50 ms on the way
  std::uint64_t sequence = 41;
  std::int64_t sent = 60'000;
  for (; sent < 700'000; sent += 1000) packet(sequence++, sent, sent + 100);
  EXPECT_EQ(meter_.expected_by(stop(sequence + 1, sent, sent + 50), us(sent + 50)),
            us(sent + 100) + grace_.least);
}

TEST_F(PathMeterTest, witness__only_at_or_above) {
  EXPECT_FALSE(meter_.witness(0, us(0)).has_value());
  packet(7, 0, 100);
  EXPECT_FALSE(meter_.witness(8, us(200)).has_value());
  EXPECT_EQ(meter_.witness(7, us(200)), us(100));
  EXPECT_EQ(meter_.witness(6, us(200)), us(200));
  packet(1ULL << 60, 1, 101);  // out of all proportion: no witness
  EXPECT_FALSE(meter_.witness(8, us(200)).has_value());
}

}  // namespace
}  // namespace thalweg
