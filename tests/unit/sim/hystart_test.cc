#include "sim/tcp/hystart.h"

#include <gtest/gtest.h>

#include "sim/tcp_harness.h"

namespace thalweg::sim {
namespace {

constexpr double kMss = 1460;

// Acknowledgements by hand, of a window of so many segments.
struct Acks {
  // Moves the time by `gap` and the first missing byte by a segment.
  bool ack(Duration gap, Duration round_trip) {
    now += gap;
    acked += 1460;
    return hystart.on_ack({.now = now,
                           .round_trip = round_trip,
                           .smoothed = round_trip,
                           .acked = acked,
                           .sent = acked + static_cast<std::uint64_t>(segments * kMss),
                           .window = segments * kMss,
                           .window_segments = segments});
  }
  // How many acknowledgements it takes; 0: more than `most`.
  int until_full(int most, Duration gap, Duration round_trip) {
    for (int i = 1; i <= most; ++i) {
      if (ack(gap, round_trip)) return i;
    }
    return 0;
  }

  HyStart hystart;
  double segments = 100;
  Time now = Time::at(Duration::milliseconds(1000));
  std::uint64_t acked = 0;
};

Duration ms(std::int64_t count) { return Duration::milliseconds(count); }

// Half of 30 ms and of the millisecond that bursts may take.
TEST(HyStart, ack_train__longer_than_half_the_least_round_trip) {
  Acks acks;
  EXPECT_EQ(acks.until_full(100, ms(1), ms(30)), 17);  // the first begins the round: 16 ms > 15.5
  EXPECT_EQ(acks.until_full(300, ms(1), ms(30)), 0);   // it says so once
  acks.hystart.reset();
  EXPECT_GT(acks.until_full(100, ms(1), ms(30)), 0);
}

TEST(HyStart, ack_train__ends_where_acknowledgements_pause) {
  Acks acks;
  EXPECT_EQ(acks.until_full(10, ms(1), ms(30)), 0);
  EXPECT_EQ(acks.until_full(80, ms(3), ms(30)), 0);
}

TEST(HyStart, delay__longer_by_an_eighth_between_4_and_16_ms) {
  struct Row {
    int least_ms;
    int least_increase_ms;
  };
  for (const Row& row : {Row{10, 4}, Row{40, 5}, Row{80, 10}, Row{400, 16}}) {
    for (const int more : {0, 1}) {
      SCOPED_TRACE(testing::Message() << row.least_ms << " ms and " << more);
      Acks acks;
      // Gaps are too long for a train. The first round of 101 segments measures the least.
      EXPECT_EQ(acks.until_full(101, ms(3), ms(row.least_ms)), 0);
      const int later = acks.until_full(50, ms(3), ms(row.least_ms + row.least_increase_ms + more));
      EXPECT_EQ(later, more == 0 ? 0 : 9);  // after eight samples of the round
    }
  }
}

TEST(HyStart, delay__one_short_round_trip_of_the_round_is_enough) {
  Acks acks;
  EXPECT_EQ(acks.until_full(101, ms(3), ms(40)), 0);
  EXPECT_EQ(acks.until_full(4, ms(3), ms(80)), 0);
  EXPECT_FALSE(acks.ack(ms(3), ms(41)));
  EXPECT_EQ(acks.until_full(50, ms(3), ms(80)), 0);
}

TEST(HyStart, small_windows__are_left_alone) {
  Acks acks;
  acks.segments = 15;
  EXPECT_EQ(acks.until_full(300, ms(1), ms(30)), 0);
  EXPECT_EQ(acks.until_full(300, ms(1), ms(300)), 0);
}

struct OfThePipe {
  double seconds;
  std::uint64_t drops;
};

// A flow over a link of 100 Mb/s with a round trip of 30 ms, whose content is 375 kB.
OfThePipe through_pipe(const char* hystart, std::int64_t buffer, std::uint64_t bytes) {
  const auto factory =
      transport_or_fail("cubic", {{"hystart", hystart}, {"sack", "on"}, {"rto_min", "200ms"}});
  PipeOptions options;
  options.rate = Bandwidth::bits_per_second(100'000'000);
  options.delay = ms(15);
  options.buffer = Bytes(buffer);
  Pipe pipe(*factory, options);
  pipe.run({bytes}, Time::at(ms(100'000)));
  EXPECT_TRUE(pipe.all_done());
  return {pipe.last_done().since_start().s(), pipe.drops()};
}

TEST(HyStart, pipe__slow_start_ends_before_the_buffer_is_full) {
  EXPECT_EQ(through_pipe("on", 375'000, 6'000'000).drops, 0U);
  EXPECT_GT(through_pipe("off", 375'000, 6'000'000).drops, 100U);
}

TEST(HyStart, pipe__a_clean_link_is_used_as_well) {
  const double with = through_pipe("on", 0, 20'000'000).seconds;
  const double without = through_pipe("off", 0, 20'000'000).seconds;
  EXPECT_LT(with, without * 1.03);
}

TEST(HyStart, newreno__has_no_such_option) {
  EXPECT_FALSE(make_transport("newreno", {{"hystart", "on"}}).ok());
}

}  // namespace
}  // namespace thalweg::sim
