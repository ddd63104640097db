// Many senders and one receiver that gives grants, under lost, doubled and late grants and data.
#include <gtest/gtest.h>

#include "incast_world.h"
#include "sanitized.h"

namespace thalweg::proto {
namespace {

constexpr TransferOrder kUrgentShortest = {.by_urgency = true, .by_size = true, .ageing = 0.01};

IncastOptions incast(std::uint64_t seed) {
  IncastOptions options;
  options.grants.round_trip = Duration::microseconds(45);
  options.order = kUrgentShortest;
  options.seed = seed;
  return options;
}

TEST(Incast, run__without_loss__every_byte_leaves_once) {
  IncastOptions options = incast(3);
  options.senders = 16;
  options.buffer = 1 << 30;
  IncastWorld world(options);
  EXPECT_EQ(world.run(), "");
  EXPECT_EQ(world.retransmitted(), 0U);
  EXPECT_EQ(world.lost(), 0U);
}

TEST(Incast, run__loss_within_the_bound__unsent_segments_take_the_place_of_lost_ones) {
  IncastOptions options = incast(4);
  options.senders = 8;
  options.most_segments = 2000;
  options.bound = 0.3;
  options.loss = 0.05;
  options.buffer = 1 << 30;
  IncastWorld world(options);
  EXPECT_EQ(world.run(), "");
  EXPECT_GT(world.lost(), 0U);
  EXPECT_EQ(world.retransmitted(), 0U);
}

// The same senders and buffer with and without grants.
TEST(Incast, run__grants_keep_the_buffer_from_overflowing) {
  IncastOptions options = incast(5);
  options.senders = 32;
  options.transfers = 4;
  options.bound = 0.1;
  IncastWorld granted(options);
  ASSERT_EQ(granted.run(), "");
  options.receiver_grants = false;
  options.all_senders_grant = false;
  options.order = {};
  IncastWorld literal(options);
  ASSERT_EQ(literal.run(), "");
  EXPECT_LT(granted.lost() * 4, literal.lost());
  EXPECT_LT(granted.now(), literal.now());
}

TEST(Incast, run__all_grants_lost__ends_by_what_senders_ask) {
  IncastOptions options = incast(6);
  options.grant_loss = 0.9;
  options.mixed_bounds = true;
  options.bound = 0.1;
  IncastWorld world(options);
  EXPECT_EQ(world.run(), "");
}

TEST(Incast, run__a_sender_with_much_to_send_says_that_it_is_busy) {
  IncastOptions options = incast(7);
  options.senders = 1;
  options.transfers = 20;
  options.most_segments = 3000;
  options.grants.busy_above = 0.5;
  IncastWorld world(options);
  EXPECT_EQ(world.run(), "");
  EXPECT_GT(world.busy_wants(), 0U);
}

IncastOptions random_incast(std::uint64_t seed) {
  Prng prng(seed * 2 + 1);
  IncastOptions options = incast(seed);
  options.senders = static_cast<int>(1 + prng.below(12));
  options.transfers = static_cast<int>(1 + prng.below(4));
  options.most_segments = static_cast<std::int64_t>(1 + prng.below(400));
  options.mixed_bounds = prng.chance(0.5);
  options.bound = prng.chance(0.3) ? 0 : prng.real() * 0.4;
  options.buffer = static_cast<std::int64_t>(5'000 + prng.below(300'000));
  options.loss = prng.chance(0.5) ? 0 : prng.real() * 0.3;
  options.duplication = prng.chance(0.7) ? 0 : prng.real() * 0.3;
  options.jitter = Duration::microseconds(static_cast<std::int64_t>(prng.below(100)));
  options.grant_loss = prng.chance(0.5) ? 0 : prng.real() * 0.6;
  options.grant_duplication = prng.chance(0.5) ? 0 : prng.real();
  options.grant_jitter = Duration::microseconds(static_cast<std::int64_t>(prng.below(2000)));
  options.grants.overcommit = 0.1 + prng.real() * 4;
  options.grants.parallel = static_cast<std::uint32_t>(1 + prng.below(12));
  options.grants.quantum = static_cast<std::uint32_t>(1 + prng.below(16));
  options.grants.first = prng.chance(0.3) ? 0 : prng.real() * 2;
  options.grants.busy_above = prng.chance(0.5) ? 16 : 0.1 + prng.real();
  options.order = prng.chance(0.3) ? TransferOrder{} : kUrgentShortest;
  options.all_senders_grant = prng.chance(0.7);
  options.receiver_grants = prng.chance(0.9);
  options.watches_silence = prng.chance(0.4);
  if (options.watches_silence) {
    options.grants.stall = Duration::microseconds(static_cast<std::int64_t>(1 + prng.below(3000)));
  }
  return options;
}

TEST(Incast, run__random_worlds__progress_bound_and_nothing_left) {
  const std::uint64_t seeds = kUnderSanitizer ? 100 : 1'500;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    IncastWorld world(random_incast(seed));
    ASSERT_EQ(world.run(), "") << "seed " << seed;
  }
}

TEST(Incast, run__same_seed__same_result) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    IncastWorld once(random_incast(seed));
    IncastWorld again(random_incast(seed));
    ASSERT_EQ(once.run(), "");
    ASSERT_EQ(again.run(), "");
    EXPECT_EQ(once.digest(), again.digest());
    EXPECT_EQ(once.now(), again.now());
  }
}

}  // namespace
}  // namespace thalweg::proto
