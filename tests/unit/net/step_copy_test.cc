#include "net/group/shm/step_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <vector>

namespace thalweg::net {
namespace {

// How long the next timed steps take. The last entry holds for all further steps.
std::deque<Duration> durations;
Time now;
bool within = false;

Time clock_of_test() {
  if (within) {
    now = now + durations.front();
    if (durations.size() > 1) durations.pop_front();
  }
  within = !within;
  return now;
}

constexpr Duration kFast = StepCopy::kFast / 2;
constexpr Duration kSlow = StepCopy::kFast * 4;

class StepCopyTest : public testing::Test {
 protected:
  StepCopyTest() {
    now = Time();
    within = false;
  }
  // Copies `steps` steps. The timed ones take `times`.
  void copy(unsigned steps, std::deque<Duration> times) {
    durations = std::move(times);
    for (unsigned i = 0; i < steps; ++i) {
      copy_.copy(memory_.data(), memory_.data() + StepCopy::kStep);
    }
  }
  // Copies one timed step and those before the next timed one.
  void copy_row(std::deque<Duration> times) { copy(StepCopy::kPlainPerTimed, std::move(times)); }

  StepCopy copy_{&clock_of_test};
  std::vector<std::byte> memory_ = std::vector<std::byte>(2 * StepCopy::kStep);
};

TEST_F(StepCopyTest, streams__after_a_row_of_plain_steps_that_were_slow_beside_streamed_ones) {
  for (int i = 0; i < 10; ++i) {
    for (int k = 1; k < StepCopy::kSlowInARow; ++k) copy_row({kSlow, kFast});
    EXPECT_FALSE(copy_.streams());
    copy_row({kFast});
  }
  for (int k = 0; k < StepCopy::kSlowInARow; ++k) copy_row({kSlow, kFast});
  EXPECT_TRUE(copy_.streams());
}

TEST_F(StepCopyTest, streams__not_where_both_ways_are_slow) {
  for (int k = 0; k < 100; ++k) copy_row({kSlow, kSlow});
  EXPECT_FALSE(copy_.streams());
}

TEST_F(StepCopyTest, streams__until_a_plain_step_is_fast_or_no_slower) {
  for (const std::deque<Duration>& end : {std::deque{kFast}, std::deque{kSlow, kSlow}}) {
    for (int k = 0; k < StepCopy::kSlowInARow; ++k) copy_row({kSlow, kFast});
    ASSERT_TRUE(copy_.streams());
    copy(2 * StepCopy::kStreamedPerTimed, {kSlow, kFast, kSlow, kFast});
    EXPECT_TRUE(copy_.streams());
    copy(StepCopy::kStreamedPerTimed, end);
    EXPECT_FALSE(copy_.streams());
    copy(StepCopy::kStreamedPerTimed, {kFast});
  }
}

TEST_F(StepCopyTest, copy__every_byte_and_no_other) {
  constexpr std::size_t kMargin = 64;
  std::vector<std::byte> from(StepCopy::kStep + kMargin);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(1 + i % 251);
  for (const std::size_t to_offset : {0U, 1U, 32U, 63U}) {
    for (const std::size_t from_offset : {0U, 3U}) {
      // This covers plain steps, streamed ones for comparison, and streaming in the end.
      durations = {kSlow, kFast, kSlow, kFast, kSlow, kFast, kSlow, kFast};
      StepCopy copy(&clock_of_test);
      for (unsigned turn = 0; turn < 5 * StepCopy::kPlainPerTimed; ++turn) {
        std::vector<std::byte> to(StepCopy::kStep + 2 * kMargin);
        std::vector<std::byte> wanted = to;
        std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(from_offset), StepCopy::kStep,
                    wanted.begin() + static_cast<std::ptrdiff_t>(to_offset));
        copy.copy(to.data() + to_offset, from.data() + from_offset);
        ASSERT_TRUE(to == wanted) << " to " << to_offset << " from " << from_offset;
      }
      EXPECT_TRUE(copy.streams());
    }
  }
}

}  // namespace
}  // namespace thalweg::net
