#include "net/collective/step_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace thalweg {
namespace {

constexpr Duration kLong = StepCopy::kSlow * 3;
constexpr Duration kShort = StepCopy::kSlow / 3;

void hear(StepCopy& copy, Duration time, int times) {
  for (int i = 0; i < times; ++i) copy.took(time);
}

TEST(StepCopy, took__only_a_row_of_slow_steps_makes_it_stream) {
  StepCopy copy;
  for (int i = 0; i < 10; ++i) {
    hear(copy, kLong, StepCopy::kSlowInARow - 1);
    EXPECT_FALSE(copy.streams());
    hear(copy, kShort, 1);
  }
  hear(copy, kLong, StepCopy::kSlowInARow);
  EXPECT_TRUE(copy.streams());
  hear(copy, kLong, 3);
  EXPECT_TRUE(copy.streams());
  hear(copy, kShort, 1);
  EXPECT_FALSE(copy.streams());
}

TEST(StepCopy, copy__every_byte_and_no_other_both_ways) {
  constexpr std::size_t kMargin = 64;
  std::vector<std::byte> from(StepCopy::kStep + kMargin);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(1 + i % 251);
  for (const bool streams : {false, true}) {
    for (const std::size_t to_offset : {0U, 1U, 32U, 63U}) {
      for (const std::size_t from_offset : {0U, 3U}) {
        StepCopy copy;
        // The first is timed, and plain.
        for (int turn = 0; turn < 2; ++turn) {
          hear(copy, streams ? kLong : kShort, StepCopy::kSlowInARow);
          std::vector<std::byte> to(StepCopy::kStep + 2 * kMargin);
          std::vector<std::byte> wanted = to;
          std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(from_offset), StepCopy::kStep,
                      wanted.begin() + static_cast<std::ptrdiff_t>(to_offset));
          ASSERT_EQ(copy.streams() && !copy.is_timed(), streams && turn == 1);
          copy.copy(to.data() + to_offset, from.data() + from_offset);
          ASSERT_TRUE(to == wanted) << " to " << to_offset << " from " << from_offset;
        }
      }
    }
  }
}

// A row cannot be missed, and what streams finds out that it need not.
TEST(StepCopy, is_timed__one_in_several) {
  StepCopy copy;
  std::vector<std::byte> memory(2 * StepCopy::kStep);
  int timed = 0;
  for (unsigned i = 0; i < 2 * StepCopy::kStreamedPerTimed; ++i) {
    hear(copy, kLong, StepCopy::kSlowInARow);
    timed += copy.is_timed() ? 1 : 0;
    copy.copy(memory.data(), memory.data() + StepCopy::kStep);
  }
  EXPECT_EQ(timed, 2);
  timed = 0;
  for (unsigned i = 0; i < 4 * StepCopy::kPlainPerTimed; ++i) {
    hear(copy, kShort, 1);
    timed += copy.is_timed() ? 1 : 0;
    copy.copy(memory.data(), memory.data() + StepCopy::kStep);
  }
  EXPECT_EQ(timed, 4);
}

}  // namespace
}  // namespace thalweg
