#include "proto/atp/congestion.h"

#include <gtest/gtest.h>

#include <functional>

namespace thalweg::proto {
namespace {

constexpr Duration kMs = Duration::milliseconds(1);

TEST(AtpCongestion, window__as_section_5_4_says) {
  AtpWorkerOptions options;
  options.elements = 64;
  options.window = 1024;
  options.congestion.initial_packets = 50;
  options.congestion.threshold = Bytes(20'500);
  const std::int64_t packet = 42 + 44 + 256;
  AtpCongestion congestion(options);
  EXPECT_EQ(congestion.packets(), 50U);
  EXPECT_EQ(congestion.window(), Bytes(50 * packet));
  // Slow start: one MTU per packet.
  congestion.on_parameter(0, false, true, 50);
  EXPECT_EQ(congestion.window(), Bytes(50 * packet + 1500));
  congestion.on_parameter(1, false, true, 51);
  congestion.on_parameter(2, false, true, 52);
  EXPECT_EQ(congestion.window(), Bytes(50 * packet + 4500));
  // Beyond the threshold: one MTU per window.
  const std::int64_t window = congestion.window().count();
  const std::int64_t packets_of_a_window = (window + packet - 1) / packet;
  for (std::int64_t i = 0; i < packets_of_a_window; ++i)
    congestion.on_parameter(3, false, true, 60);
  EXPECT_EQ(congestion.window(), Bytes(window + 1500));
  EXPECT_EQ(congestion.packets(), (window + 1500 + packet - 1) / packet);
  // The first mark nearly halves the window; marks and losses of the same flight do not cut it
  // again, later ones do.
  congestion.on_parameter(60, true, true, 100);
  const std::int64_t less = congestion.window().count();
  EXPECT_GE(less, (window + 1500) / 2);
  EXPECT_LT(less, (window + 1500) * 11 / 20);
  EXPECT_EQ(congestion.threshold(), congestion.window());
  congestion.on_parameter(99, true, true, 120);
  congestion.on_loss(99, 120);
  EXPECT_EQ(congestion.window(), Bytes(less));
  congestion.on_loss(100, 120);
  EXPECT_EQ(congestion.window(), Bytes(less / 2));
  // The window is never below one packet, and never above the job's window.
  for (std::uint64_t s = 200; s < 240; ++s) congestion.on_loss(s, s + 1);
  EXPECT_EQ(congestion.packets(), 1U);
  for (int i = 0; i < 1'000'000; ++i) congestion.on_parameter(300, false, true, 301);
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

// As in DCTCP: few marks cost little, and a link that marks everything halves the window.
TEST(AtpCongestion, on_parameter__marks_cut_by_the_part_that_is_marked) {
  const AtpWorkerOptions options;
  // The part of the window that the last of 300 flights loses, in which one sum of 50 is marked.
  AtpCongestion congestion(options);
  double cut = 0;
  for (std::uint64_t s = 0; s < 300 * 50; ++s) {
    const auto before = static_cast<double>(congestion.window().count());
    congestion.on_parameter(s, s % 50 == 0, true, s / 50 * 50 + 50);
    if (s % 50 == 0) cut = 1 - static_cast<double>(congestion.window().count()) / before;
  }
  EXPECT_GT(cut, 0.0);
  EXPECT_LT(cut, 0.03);
  // Nothing is known at first: a mark counts for all.
  AtpCongestion first(options);
  first.on_parameter(0, true, true, 50);
  EXPECT_EQ(first.window(), Bytes(AtpCongestion(options).window().count() / 2));
}

TEST(AtpCongestion, on_parameter__a_window_that_is_not_used_does_not_grow) {
  const AtpWorkerOptions options;
  AtpCongestion congestion(options);
  const Bytes initial = congestion.window();
  congestion.on_parameter(0, false, false, 50);
  EXPECT_EQ(congestion.window(), initial);
  congestion.on_parameter(1, false, true, 50);
  EXPECT_GT(congestion.window(), initial);
}

// Slow start multiplies the window while the first flights come back. Sums that all took longer end
// it, long before the typical time says so, and the window falls to what the queue may hold.
TEST(AtpCongestion, on_delay__slow_start_ends_when_sums_stood_in_a_queue) {
  AtpWorkerOptions options;
  options.congestion.queue = kMs * 5;
  AtpCongestion congestion(options);
  const Bytes initial = congestion.window();
  std::uint64_t next = congestion.packets();
  std::uint64_t sequence = 0;
  const auto arrive = [&](int sums, Duration took) {
    for (int i = 0; i < sums; ++i) {
      congestion.on_delay(took, kMs);
      congestion.on_parameter(sequence, false, true, next);
      ++sequence;
      next = std::max(next, sequence + congestion.packets());
    }
  };
  arrive(200, kMs);
  const Bytes grown = congestion.window();
  EXPECT_EQ(grown, initial + Bytes(200 * 1500));
  // One that was fast among them shows that no queue stood.
  arrive(15, kMs * 10);
  arrive(1, kMs);
  EXPECT_EQ(congestion.threshold(), options.congestion.threshold);
  arrive(64, kMs * 12);
  EXPECT_EQ(congestion.threshold(), congestion.window());
  EXPECT_LT(congestion.window(), Bytes(grown.count() * 3 / 4));
  EXPECT_GE(congestion.window(), initial);
  // From there on it grows by a step a flight.
  const Bytes after = congestion.window();
  arrive(static_cast<int>(congestion.packets()) + 1, kMs);
  EXPECT_LE(congestion.window(), after + Bytes(2 * 1500));
}

// After each pause sums are fast at first, and the window grows until the queue stands again.
// Without giving that up, pauses alone would make it as large as the job's.
TEST(AtpCongestion, on_parameter__pauses_do_not_make_the_window_grow) {
  AtpWorkerOptions options;
  options.congestion.queue = kMs * 5;
  options.congestion.threshold = Bytes(1);  // no slow start
  AtpCongestion congestion(options);
  const auto arrive = [&](std::uint32_t sums, Duration typical) {
    for (std::uint32_t i = 0; i < sums; ++i) {
      congestion.on_delay(kMs, typical);
      congestion.on_parameter(0, false, true, 1);
    }
  };
  const Bytes initial = congestion.window();
  for (int pause = 0; pause < 100; ++pause) {
    arrive(4 * congestion.packets(), kMs * 2);
    EXPECT_GT(congestion.window(), initial);
    arrive(100, kMs * 20);
    EXPECT_EQ(congestion.window(), initial);
  }
  // What grew over many flights is what the link can carry: most of it stays.
  arrive(60 * 200, kMs * 2);
  const Bytes grown = congestion.window();
  arrive(100, kMs * 20);
  EXPECT_EQ(congestion.window(), grown - Bytes(8 * 1500));
}

// All sums but the first ones stand behind the window that was sent at once.
TEST(AtpCongestion, on_first__tells_how_long_sums_take_without_a_queue) {
  AtpWorkerOptions options;
  options.congestion.queue = kMs * 5;
  const auto grows = [&](Duration first) {
    AtpCongestion congestion(options);
    congestion.on_first(first);
    congestion.on_delay(kMs * 9, kMs * 9);
    const Bytes before = congestion.window();
    congestion.on_parameter(0, false, true, 50);
    return congestion.window() > before;
  };
  EXPECT_FALSE(grows(kMs));
  EXPECT_TRUE(grows(kMs * 4));
  // A loss is judged by the sums that stood behind a window, as before.
  AtpCongestion congestion(options);
  congestion.on_first(kMs);
  congestion.on_delay(kMs * 9, kMs * 9);
  const Bytes before = congestion.window();
  congestion.on_loss(0, 50);
  EXPECT_EQ(congestion.window(), before);
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
  const auto grow = [](AtpCongestion& congestion) { congestion.on_parameter(0, false, true, 50); };
  EXPECT_EQ(window_after(kMs * 7, grow), initial + Bytes(1500));
  EXPECT_EQ(window_after(kMs * 8, grow), initial);
  // A loss costs what stood in queues beyond a second flight; alone, it shows no congestion.
  const auto lose = [](AtpCongestion& congestion) { congestion.on_loss(0, 50); };
  EXPECT_EQ(window_after(kMs * 3, lose), initial);
  EXPECT_EQ(window_after(kMs * 8, lose), Bytes(initial.count() / 2));
  const Bytes some = window_after(kMs * 5, lose);
  EXPECT_LT(some, initial);
  EXPECT_GT(some, Bytes(initial.count() * 3 / 4));
  // Below the initial window it grows all the same: the path may have become longer.
  EXPECT_GT(window_after(kMs * 8,
                         [&](AtpCongestion& congestion) {
                           lose(congestion);
                           for (int i = 0; i < 1000; ++i) grow(congestion);
                         }),
            Bytes(initial.count() / 2));
}

}  // namespace
}  // namespace thalweg::proto
