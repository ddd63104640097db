// CUBIC's window against the formulas of RFC 9438.
#include <gtest/gtest.h>

#include <cmath>

#include "sim/tcp_harness.h"

namespace thalweg::sim {
namespace {

constexpr double kC = 0.4;
constexpr double kBeta = 0.7;

// A flow in congestion avoidance, driven one round trip at a time: every segment of a window is
// acknowledged one round trip after it was sent.
class CubicFlow {
 public:
  CubicFlow(double window, Duration rtt, KeyValues given = {})
      : flow_("cubic", with_defaults(std::move(given)), 100'000'000, window), rtt_(rtt) {
    flow_.set_round_trip(rtt);
    next_unsent_ = flow_.send().size();
  }

  void round_trip() {
    flow_.wait(rtt_);
    const std::uint64_t end = next_unsent_;
    while (acked_ < end) acknowledge(acked_ + 1);
  }

  // Loses and repairs the first outstanding segment.
  void lose() {
    flow_.wait(rtt_);
    const std::uint64_t end = next_unsent_;
    for (std::uint64_t i = acked_ + 1; i < end; ++i) {
      flow_.ack(acked_);
      count(flow_.send());
    }
    after_loss_ = flow_.window();
    flow_.wait(rtt_);
    acknowledge(next_unsent_);
  }

  void time_out() {
    flow_.time_out();
    flow_.send();
    flow_.wait(rtt_);
    acknowledge(next_unsent_);
  }

  [[nodiscard]] double window() const { return flow_.window(); }
  // The window that recovery set.
  [[nodiscard]] double after_loss() const { return after_loss_; }
  [[nodiscard]] double seconds() const { return flow_.now().since_start().s(); }

 private:
  static KeyValues with_defaults(KeyValues given) {
    given.emplace("warm", "avoidance");
    given.emplace("rto_min", "5s");
    given.emplace("limited_transmit", "off");
    return given;
  }
  void acknowledge(std::uint64_t next) {
    acked_ = next;
    flow_.ack(next);
    count(flow_.send());
  }
  void count(const std::vector<std::uint64_t>& sent) {
    for (const std::uint64_t number : sent) next_unsent_ = std::max(next_unsent_, number + 1);
  }

  SenderByHand flow_;
  Duration rtt_;
  std::uint64_t acked_ = 0;
  std::uint64_t next_unsent_ = 0;
  double after_loss_ = 0;
};

// Runs round trips until the window is where recovery put it, that is until the slow beginning is
// over.
void regain(CubicFlow& flow) {
  while (flow.window() < flow.after_loss() - 1e-9) flow.round_trip();
}

TEST(TcpCubic, loss__keeps_beta_of_the_window) {
  CubicFlow flow(1000, Duration::milliseconds(100));
  flow.lose();
  EXPECT_NEAR(flow.after_loss(), 1000 * kBeta, 1);
}

// With long round trips the cubic decides: after the loss at 1000 the window is C (t - K)^3 +
// W_max.
TEST(TcpCubic, growth__follows_the_cubic) {
  CubicFlow flow(1000, Duration::milliseconds(50));
  flow.lose();
  regain(flow);
  const double start = flow.seconds();
  const double k = std::cbrt(1000 * (1 - kBeta) / kC);
  double worst = 0;
  while (flow.seconds() < start + 2 * k) {
    flow.round_trip();
    // All acknowledgements of a round trip come at once, so the window nearly reaches the cubic's
    // value one round trip later.
    const double t = flow.seconds() - start + 0.05 - k;
    worst = std::max(worst, std::abs(flow.window() - (kC * t * t * t + 1000)));
  }
  // Over a range of 700 to 1300 packets.
  EXPECT_LT(worst, 9);
  EXPECT_NEAR(flow.window(), 1300, 20);
}

// With short round trips Reno with the same mean window is faster and decides: 3 (1 - beta) / (1 +
// beta) segments per round trip up to the window of the loss, then 1.
TEST(TcpCubic, growth__reno_where_that_is_faster) {
  const Duration rtt = Duration::microseconds(100);
  CubicFlow flow(50, rtt);
  flow.lose();
  regain(flow);
  const double slope = 3 * (1 - kBeta) / (1 + kBeta);
  double before = flow.window();
  for (int i = 0; i < 10; ++i) flow.round_trip();
  EXPECT_NEAR(flow.window() - before, 10 * slope, 0.4);
  while (flow.window() < 51) flow.round_trip();
  before = flow.window();
  for (int i = 0; i < 20; ++i) flow.round_trip();
  EXPECT_NEAR(flow.window() - before, 20, 0.5);
}

// A second loss below the last plateau sets the next one lower: at (1 + beta) / 2 of the window.
TEST(TcpCubic, fast_convergence__lowers_the_plateau) {
  for (const bool on : {true, false}) {
    SCOPED_TRACE(on);
    CubicFlow flow(1000, Duration::milliseconds(50), {{"fast_convergence", on ? "on" : "off"}});
    flow.lose();
    regain(flow);
    flow.lose();
    regain(flow);
    const double second = flow.window();
    const double plateau = second / kBeta * (on ? (1 + kBeta) / 2 : 1);
    const double start = flow.seconds();
    const double k = std::cbrt((plateau - second) / kC);
    while (flow.seconds() < start + k) flow.round_trip();
    EXPECT_NEAR(flow.window(), plateau, 6);
  }
}

// After a timeout the cubic starts at its plateau, so it is convex from the slow-start threshold
// on.
TEST(TcpCubic, timeout__starts_at_the_plateau) {
  CubicFlow flow(200, Duration::milliseconds(50));
  flow.time_out();
  EXPECT_LT(flow.window(), 5);
  while (flow.window() < 200 * kBeta) flow.round_trip();
  const double start = flow.seconds();
  const double origin = flow.window();
  EXPECT_LT(origin, 200);
  while (flow.seconds() < start + 6) flow.round_trip();
  EXPECT_NEAR(flow.window(), origin + kC * 6 * 6 * 6, 12);
}

}  // namespace
}  // namespace thalweg::sim
