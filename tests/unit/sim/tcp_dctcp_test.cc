// DCTCP: exact values of alpha and of cuts, and the sawtooth of the DCTCP paper (Alizadeh et al.,
// SIGCOMM 2010, section 3.3) over a pipe.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "sim/tcp_harness.h"

namespace thalweg::sim {
namespace {

using DctcpNumbers = std::vector<std::uint64_t>;

// Acknowledges a window of `size` segments from `first` on, the last `marked` of them as marked.
void ack_window(SenderByHand& flow, std::uint64_t first, std::uint64_t size, std::uint64_t marked) {
  for (std::uint64_t i = 0; i < size; ++i) {
    flow.ack(first + i + 1, i >= size - marked);
    flow.send();
  }
}

TEST(TcpDctcp, segments__ecn_capable_also_when_sent_again) {
  SenderByHand flow("dctcp", {}, 100);
  flow.send();
  EXPECT_EQ(flow.last().ecn, Ecn::kCapable);
  flow.time_out();
  flow.send();
  EXPECT_TRUE(flow.last().retransmission);
  EXPECT_EQ(flow.last().ecn, Ecn::kCapable);
}

// alpha starts at 1, so the first mark halves. Further marks in the same window change nothing.
TEST(TcpDctcp, mark__cuts_once_a_window) {
  SenderByHand flow("dctcp", {{"warm", "avoidance"}}, 1000, 20);
  flow.send();
  flow.ack(1, true);
  EXPECT_DOUBLE_EQ(flow.window(), 10);
  for (std::uint64_t next = 2; next <= 20; ++next) {
    flow.ack(next, true);
    flow.send();
  }
  EXPECT_DOUBLE_EQ(flow.window(), 10);
  EXPECT_EQ(flow.sender().counters().marks_echoed, 20U);
  flow.send();
  // Segment 20 was sent after the cut. A full window of marks kept alpha at 1.
  flow.ack(21, true);
  EXPECT_DOUBLE_EQ(flow.window(), 5);
}

TEST(TcpDctcp, alpha__weighs_the_marked_fraction_of_a_window) {
  SenderByHand flow("dctcp", {{"warm", "avoidance"}, {"alpha", "0.5"}, {"g", "0.25"}}, 1000, 16);
  flow.send();
  // 4 of 16 are marked: the first mark cuts by alpha / 2 = 1/4, with the old alpha.
  double window = 16;
  for (int i = 0; i < 12; ++i) window += 1 / window;
  ack_window(flow, 0, 16, 4);
  EXPECT_DOUBLE_EQ(flow.window(), window * 0.75);
  // alpha = 3/4 * 1/2 + 1/4 * 1/4. The 12 segments that were outstanding at the cut come back
  // unmarked and reduce it to 3/4 of that; the first segment sent after the cut is marked and shows
  // it.
  ack_window(flow, 16, 12, 0);
  const double alpha = 0.75 * (0.375 + 0.0625);
  window = flow.window();
  flow.ack(29, true);
  EXPECT_DOUBLE_EQ(flow.window(), window * (1 - alpha / 2));
}

TEST(TcpDctcp, loss__halves_whatever_alpha_is) {
  SenderByHand flow("dctcp", {{"warm", "avoidance"}, {"alpha", "0"}}, 1000, 20);
  flow.send();
  EXPECT_EQ(flow.duplicates(0, 3).back(), 0U);
  EXPECT_DOUBLE_EQ(flow.window(), 10);
}

TEST(TcpDctcp, cut__never_below_two_segments) {
  SenderByHand flow("dctcp", {{"warm", "avoidance"}}, 1000, 3);
  flow.send();
  for (std::uint64_t next = 1; next < 40; ++next) {
    flow.ack(next, true);
    flow.send();
  }
  EXPECT_DOUBLE_EQ(flow.window(), 2);
}

struct WindowSawtooth {
  double lowest = 1e18;  // queue, packets
  double highest = 0;
  double utilisation = 0;
};

// `flows` endless flows through 10 Gb/s, base round trip 100 us; the second half is measured.
WindowSawtooth measure_sawtooth(double k, std::size_t flows) {
  const auto factory = transport_or_fail("dctcp", {});
  constexpr double kPacket = 1500;
  PipeOptions options;
  options.mark_above = Bytes(static_cast<std::int64_t>(k * kPacket));
  Pipe pipe(*factory, options);
  pipe.keep_sent(false);
  const Time half = Time::at(Duration::milliseconds(100));
  const Time end = Time::at(Duration::milliseconds(200));
  WindowSawtooth result;
  std::uint64_t delivered_at_half = 0;
  pipe.on_queue([&](Time now, std::uint64_t bytes) {
    if (now < half) {
      delivered_at_half = pipe.delivered();
      return;
    }
    const double packets = static_cast<double>(bytes) / kPacket;
    result.lowest = std::min(result.lowest, packets);
    result.highest = std::max(result.highest, packets);
  });
  pipe.run(std::vector<std::uint64_t>(flows, 1'000'000'000), end);
  const auto delivered = static_cast<double>(pipe.delivered() - delivered_at_half);
  result.utilisation = delivered * (kPacket / 1460) * 8 / 10e9 / (end - half).s();
  return result;
}

// The model for N synchronized flows: the queue's peak is K + N, and it swings by A = sqrt(2 N (C
// RTT + K)) / 2 packets. The queue is sampled at arrivals, and each packet counts itself, so the
// tolerance is 2 packets besides 25 % of the swing.
TEST(TcpDctcp, sawtooth__as_the_papers_model) {
  constexpr double kBdp = 10e9 * 100e-6 / 8 / 1500;
  for (const double k : {30.0, 65.0, 130.0}) {
    SCOPED_TRACE(testing::Message() << "K " << k);
    const double amplitude = std::sqrt(2 * (kBdp + k)) / 2;
    const WindowSawtooth measured = measure_sawtooth(k, 1);
    RecordProperty("amplitude", std::to_string(measured.highest - measured.lowest));
    EXPECT_NEAR(measured.highest, k + 1, 2);
    EXPECT_NEAR(measured.highest - measured.lowest, amplitude, 0.25 * amplitude + 2);
    EXPECT_GT(measured.utilisation, 0.999);
  }
}

TEST(TcpDctcp, sawtooth__two_flows_stay_around_the_threshold) {
  constexpr double kBdp = 10e9 * 100e-6 / 8 / 1500;
  const double amplitude = std::sqrt(2 * 2 * (kBdp + 65)) / 2;
  const WindowSawtooth measured = measure_sawtooth(65, 2);
  EXPECT_LT(measured.highest, 65 + 2 + 4);
  EXPECT_GT(measured.lowest, 65 + 2 - 1.5 * amplitude - 4);
  EXPECT_GT(measured.utilisation, 0.999);
}

}  // namespace
}  // namespace thalweg::sim
