#include "proto/atp/congestion.h"

#include <gtest/gtest.h>

#include <functional>

namespace thalweg {
namespace {

constexpr Duration kMs = Duration::milliseconds(1);

TEST(AtpCongestion, window__as_section_5_4_says) {
  AtpWorkerOptions options;
  options.elements = 64;
  options.window = 1024;
  options.congestion.initial_packets = 50;
  options.congestion.threshold = Bytes(20'000);
  const std::int64_t packet = 42 + 32 + 256;
  AtpCongestion congestion(options);
  EXPECT_EQ(congestion.packets(), 50U);
  EXPECT_EQ(congestion.window(), Bytes(50 * packet));
  // Slow start: one MTU a packet.
  congestion.on_parameter(0, false, 50);
  EXPECT_EQ(congestion.window(), Bytes(50 * packet + 1500));
  congestion.on_parameter(1, false, 51);
  congestion.on_parameter(2, false, 52);
  EXPECT_EQ(congestion.window(), Bytes(50 * packet + 4500));
  // Beyond the threshold: one MTU a window.
  const std::int64_t window = congestion.window().count();
  const std::int64_t packets_of_a_window = (window + packet - 1) / packet;
  for (std::int64_t i = 0; i < packets_of_a_window; ++i) congestion.on_parameter(3, false, 60);
  EXPECT_EQ(congestion.window(), Bytes(window + 1500));
  EXPECT_EQ(congestion.packets(), (window + 1500 + packet - 1) / packet);
  // A mark halves it, the marks of the same flight do not again, later ones do.
  congestion.on_parameter(60, true, 100);
  EXPECT_EQ(congestion.window(), Bytes((window + 1500) / 2));
  EXPECT_EQ(congestion.threshold(), congestion.window());
  congestion.on_parameter(99, true, 120);
  congestion.on_loss(99, 120);
  EXPECT_EQ(congestion.window(), Bytes((window + 1500) / 2));
  congestion.on_loss(100, 120);
  EXPECT_EQ(congestion.window(), Bytes((window + 1500) / 4));
  // Never below a packet, never above the job's window.
  for (std::uint64_t s = 200; s < 240; ++s) congestion.on_loss(s, s + 1);
  EXPECT_EQ(congestion.packets(), 1U);
  for (int i = 0; i < 1'000'000; ++i) congestion.on_parameter(300, false, 301);
  EXPECT_EQ(congestion.packets(), 1024U);
}

TEST(AtpCongestion, on_loss__halves_the_largest_window_that_is_allowed) {
  AtpWorkerOptions options;
  options.window = AtpWorkerOptions::kMostWindow;
  options.congestion.initial_packets = options.window;
  options.frame_overhead = Bytes(std::int64_t{1} << 40);
  ASSERT_TRUE(options.validate().ok());
  AtpCongestion congestion(options);
  const std::int64_t window = congestion.window().count();
  congestion.on_loss(0, 50);
  EXPECT_EQ(congestion.window(), Bytes(window / 2));
}

TEST(AtpCongestion, on_delay__a_queue_that_stands_ends_growth_and_decides_what_a_loss_costs) {
  AtpWorkerOptions options;
  options.congestion.queue = kMs * 5;
  const auto window_after = [&](Duration typical, const std::function<void(AtpCongestion&)>& then) {
    AtpCongestion congestion(options);
    congestion.on_delay(kMs * 2, kMs * 2);
    congestion.on_delay(kMs * 20, typical);
    then(congestion);
    return congestion.window();
  };
  const Bytes initial = AtpCongestion(options).window();
  const auto grow = [](AtpCongestion& congestion) { congestion.on_parameter(0, false, 50); };
  EXPECT_EQ(window_after(kMs * 7, grow), initial + Bytes(1500));
  EXPECT_EQ(window_after(kMs * 8, grow), initial);
  const auto lose = [](AtpCongestion& congestion) { congestion.on_loss(0, 50); };
  EXPECT_EQ(window_after(kMs * 8, lose), Bytes(initial.count() / 2));
  const Bytes alone = window_after(kMs * 2, lose);
  EXPECT_EQ(alone, Bytes(initial.count() * 7 / 8));
  // Below the first window it grows all the same: the way may have become longer.
  EXPECT_GT(window_after(kMs * 8,
                         [&](AtpCongestion& congestion) {
                           lose(congestion);
                           for (int i = 0; i < 1000; ++i) grow(congestion);
                         }),
            Bytes(initial.count() / 2));
}

}  // namespace
}  // namespace thalweg
