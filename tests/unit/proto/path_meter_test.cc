#include "proto/dlcp/path_meter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace thalweg::proto {
namespace {

Time us(std::int64_t n) { return Time() + Duration::microseconds(n); }

class PathMeterTest : public testing::Test {
 protected:
  // A packet arrives that left at `sent` by the sender's clock, which is far from the receiver's.
  void packet(std::uint64_t sequence, std::int64_t sent, std::int64_t arrived, bool marked = false,
              std::uint32_t path = 0) {
    packet_in(0, sequence, sent, arrived, marked, path);
  }
  void packet_in(std::uint8_t queue, std::uint64_t sequence, std::int64_t sent,
                 std::int64_t arrived, bool marked = false, std::uint32_t path = 0) {
    wire::DataHeader header;
    header.tag.priority = queue;
    header.sequence = sequence;
    header.sent_us = clock_ + static_cast<std::uint32_t>(sent);
    header.length = 1000;
    meter_.on_packet(header, marked, path, us(arrived));
  }
  // Packets 0 … count−1 arrive, sent one every `gap` µs, with a delay of `delay` µs.
  void stream(std::uint64_t count, std::int64_t gap, std::int64_t delay, std::uint8_t queue = 0) {
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto sent = static_cast<std::int64_t>(i) * gap;
      packet_in(queue, i, sent, sent + delay);
    }
  }
  [[nodiscard]] PathMeter::Stopped stop(std::uint64_t end_sequence, std::int64_t last_sent,
                                        std::int64_t arrived, std::uint8_t queue = 0) const {
    PathMeter::Stopped stopped;
    stopped.stop.queue = queue;
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

// Path 1 is 3 ms longer, and path 2 has a queue of 400 µs after its first packet.
TEST_F(PathMeterTest, take_report__says_how_long_packets_waited_on_each_path) {
  struct Arrival {
    std::int64_t at;
    std::uint64_t sequence;
    std::uint32_t path;
  };
  std::vector<Arrival> arrivals;
  for (std::uint64_t i = 0; i < 600; ++i) {
    // Path 3 brings one packet at the beginning, and then nothing.
    const auto path = i == 3 ? 3U : static_cast<std::uint32_t>(i % 3);
    const std::int64_t delay = path == 1 ? 3050 : path == 2 && i > 2 ? 450 : 50;
    arrivals.push_back({static_cast<std::int64_t>(i) * 20 + delay, i, path});
  }
  std::ranges::sort(arrivals, {}, &Arrival::at);
  wire::ReportMessage last;
  for (const Arrival& a : arrivals) {
    packet(a.sequence, static_cast<std::int64_t>(a.sequence) * 20, a.at, false, a.path);
    if (const auto report = meter_.take_report()) last = *report;
    if (a.sequence == 550) break;
  }
  ASSERT_EQ(last.paths, 4);
  EXPECT_EQ(last.path_delay_us[0], 0);
  EXPECT_EQ(last.path_delay_us[1], 0);
  EXPECT_NEAR(last.path_delay_us[2], 400, 30);
  EXPECT_EQ(last.path_delay_us[3], wire::kNoPathDelay);
}

TEST_F(PathMeterTest, take_report__sent_and_received_in_matching_windows) {
  std::optional<wire::ReportMessage> report;
  for (std::uint64_t i = 0; !report; i += 2) {
    const auto sent = static_cast<std::int64_t>(i) * 5;
    packet(i, sent, 2 * sent + 100, i == 4);
    report = meter_.take_report();
    ASSERT_LT(i, 100U);
  }
  // Packets 0, 2, …, 20 were sent at 0 … 100 and arrived at 100 … 300; the first is the edge.
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
  // The last packet, sent at 90, would arrive at 190; the path is still unknown.
  EXPECT_EQ(meter_.expected_by(stop(10, 90, 150), us(170)), us(190) + grace_.initial);
}

TEST_F(PathMeterTest, expected_by__longest_delay_and_spread_when_known) {
  stream(40, 10, 100);
  packet(40, 400, 530);  // a delay of 130
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
  stopped.witnessed = meter_.witness(41, 0, us(900));
  ASSERT_EQ(stopped.witnessed, us(900));
  EXPECT_EQ(meter_.expected_by(stopped, us(900)), us(900) + grace_.least);
}

TEST_F(PathMeterTest, expected_by__a_witness_waits_for_what_it_may_have_overtaken) {
  stream(40, 10, 100);
  packet(41, 410, 510);
  packet(40, 400, 515);  // its delay is 15 longer than that of the one that overtook it
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
  packet(40, 400, 50'400);  // a delay of 50 ms
  std::uint64_t sequence = 41;
  std::int64_t sent = 60'000;
  for (; sent < 700'000; sent += 1000) packet(sequence++, sent, sent + 100);
  EXPECT_EQ(meter_.expected_by(stop(sequence + 1, sent, sent + 50), us(sent + 50)),
            us(sent + 100) + grace_.least);
}

TEST_F(PathMeterTest, witness__only_at_or_above) {
  EXPECT_FALSE(meter_.witness(0, 0, us(0)).has_value());
  packet(7, 0, 100);
  EXPECT_FALSE(meter_.witness(8, 0, us(200)).has_value());
  EXPECT_EQ(meter_.witness(7, 0, us(200)), us(100));
  EXPECT_EQ(meter_.witness(6, 0, us(200)), us(200));
  packet(1ULL << 60, 1, 101);  // out of all proportion: no witness
  EXPECT_FALSE(meter_.witness(8, 0, us(200)).has_value());
}

TEST_F(PathMeterTest, witness__of_its_own_queue_or_a_less_urgent_one) {
  packet_in(3, 5, 0, 100);
  packet_in(1, 9, 10, 110);
  EXPECT_FALSE(meter_.witness(7, 3, us(200)).has_value()) << "an urgent one overtakes";
  EXPECT_EQ(meter_.witness(7, 1, us(200)), us(200));
  EXPECT_EQ(meter_.witness(5, 0, us(200)), us(200));
  packet_in(6, 10, 20, 120);
  EXPECT_EQ(meter_.witness(7, 3, us(200)), us(200));
  EXPECT_EQ(meter_.witness(10, 6, us(200)), us(120));
  EXPECT_FALSE(meter_.witness(10, 7, us(200)).has_value());
  meter_.on_data_end(12, 4, 0, us(150));
  EXPECT_EQ(meter_.witness(11, 4, us(200)), us(150));
  EXPECT_EQ(meter_.witness(11, 0, us(200)), us(150));
  EXPECT_FALSE(meter_.witness(11, 5, us(200)).has_value());
}

TEST_F(PathMeterTest, witness__of_every_path_that_packets_came_by_lately) {
  for (std::uint64_t i = 0; i < 40; ++i) {
    const auto sent = static_cast<std::int64_t>(i) * 10;
    packet(i, sent, sent + 100, false, static_cast<std::uint32_t>(i % 2));
  }
  packet(42, 420, 520, false, 0);
  EXPECT_FALSE(meter_.witness(41, 0, us(530)).has_value()) << "path 1 may bring it";
  packet(43, 430, 530, false, 1);
  EXPECT_EQ(meter_.witness(41, 0, us(540)), us(540));
  // A message after the data is a witness for its own path.
  meter_.on_data_end(50, 0, 1, us(550));
  EXPECT_FALSE(meter_.witness(49, 0, us(560)).has_value());
  meter_.on_data_end(50, 0, 0, us(570));
  EXPECT_EQ(meter_.witness(49, 0, us(580)), us(580));
  // Path 1 brings nothing any more.
  for (std::int64_t sent = 1'000; sent <= 201'000; sent += 1'000) {
    packet(50 + static_cast<std::uint64_t>(sent / 1'000), sent, sent + 100, false, 0);
  }
  EXPECT_EQ(meter_.witness(250, 0, us(201'200)), us(201'200));
}

TEST_F(PathMeterTest, expected_by__packets_of_another_path_overtake_and_prove_nothing) {
  // Path 1 is 300 µs slower than path 0, and both keep their order.
  for (std::uint64_t i = 0; i < 80; ++i) {
    const std::int64_t slow = static_cast<std::int64_t>(i) * 10 - 300;
    if (slow >= 0)
      packet(static_cast<std::uint64_t>(slow / 10) * 2 + 1, slow, slow + 400, false, 1);
    packet(i * 2, static_cast<std::int64_t>(i) * 10, static_cast<std::int64_t>(i) * 10 + 100);
  }
  PathMeter::Stopped stopped = stop(160, 800, 900);
  stopped.witnessed = us(1250);
  // Nothing was overtaken on its own path, so the witnesses of both decide at once; and before
  // they come, the delay of the slower path.
  EXPECT_EQ(meter_.expected_by(stopped, us(1250)), us(1250) + grace_.least);
  stopped.witnessed.reset();
  EXPECT_EQ(meter_.expected_by(stopped, us(900)), us(800 + 400 + 300) + grace_.least);
}

TEST_F(PathMeterTest, expected_by__waits_while_more_urgent_packets_arrive) {
  stream(40, 10, 100, 4);
  const PathMeter::Stopped stopped = stop(50, 490, 540, 4);
  EXPECT_EQ(meter_.expected_by(stopped, us(540)), us(590) + grace_.least);
  std::uint64_t sequence = 50;
  for (std::int64_t sent = 500; sent <= 4900; sent += 100) {
    packet_in(1, sequence++, sent, sent + 100);
  }
  EXPECT_EQ(meter_.expected_by(stopped, us(5000)), us(5000) + grace_.initial);
  // Not for ever: what is missing may be lost.
  for (std::int64_t sent = 5000; sent <= 300'000; sent += 100) {
    packet_in(1, sequence++, sent, sent + 100);
  }
  EXPECT_EQ(meter_.expected_by(stopped, us(300'100)), us(540) + grace_.most + grace_.initial);
}

TEST_F(PathMeterTest, expected_by__a_packet_that_was_overtaken_does_not_make_its_queue_slow) {
  stream(40, 10, 100, 4);
  std::uint64_t sequence = 41;  // 40 waits
  for (std::int64_t sent = 500; sent <= 49'900; sent += 100) {
    packet_in(1, sequence++, sent, sent + 100);
  }
  packet_in(4, 40, 400, 50'030);
  // It waited 30 µs after the last urgent one; neither queue is slower for it.
  for (const std::uint8_t queue : {std::uint8_t{1}, std::uint8_t{4}}) {
    SCOPED_TRACE(int{queue});
    const std::int64_t spread = queue == 4 ? 30 : 0;
    PathMeter::Stopped stopped = stop(sequence + 10, 60'000, 60'050, queue);
    EXPECT_EQ(meter_.expected_by(stopped, us(60'050)), us(60'100 + 2 * spread) + grace_.least);
    stopped.witnessed = us(60'060);
    EXPECT_EQ(meter_.expected_by(stopped, us(60'060)), us(60'060) + grace_.least);
  }
}

TEST_F(PathMeterTest, take_report__edges_are_of_the_least_urgent_queue_that_arrives) {
  // Queue 5 takes 40 µs longer than queue 1, so its packets are overtaken.
  std::optional<wire::ReportMessage> report;
  std::int64_t now = 0;
  for (std::uint64_t i = 0; i < 60; i += 2, now += 20) {
    packet_in(1, i + 1, now + 10, now + 110);
    if (i >= 2) packet_in(5, i - 2, now - 20, now + 120);
    if (auto next = meter_.take_report()) report = next;
  }
  ASSERT_TRUE(report);
  EXPECT_EQ((report->first_sent_us - clock_) % 20, 0U) << "the even ones are of queue 5";
  EXPECT_EQ((report->last_sent_us - clock_) % 20, 0U);
  EXPECT_EQ(report->packets_sent, report->packets_received);
  // Queue 5 falls silent, and queue 1 has the edges.
  for (std::uint64_t i = 1001; i < 1100; ++i, now += 10) {
    packet_in(1, i, now, now + 100);
    report = meter_.take_report();
    if (report && report->first_sent_us - clock_ > 400) break;
  }
  ASSERT_TRUE(report);
}

}  // namespace
}  // namespace thalweg::proto
