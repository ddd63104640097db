// Check words at a switch: they add up as the elements do.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "switch/aggregation/aggregate.h"

namespace thalweg::switches::aggregate_check_test {
namespace {

constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();

AggregateTable table_of() {
  AggregateOptions options;
  options.slots = 4;
  AggregateTable table(options);
  EXPECT_TRUE(table.add_job({1, 1, true, 8, 0}).ok());
  return table;
}

// A gradient from worker `w` of 3, in group 0 of 2.
wire::AtpHeader gradient(unsigned w, std::uint64_t check, bool resend = false) {
  wire::AtpHeader header;
  header.job = 1;
  header.workers = wire::atp_bit(w);
  header.fan_in = 3;
  header.group_count = 2;
  header.elements = 64;
  header.resend = resend;
  header.check = check;
  return header;
}

TEST(AggregateTable, check__of_a_sum_is_the_sum_and_wraps_around) {
  AggregateTable table = table_of();
  for (const unsigned w : {0U, 1U, 2U}) {
    wire::AtpHeader header = gradient(w, kHuge - w);
    const AggregateAction action = table.on_gradient(header, Time());
    if (w < 2) continue;
    EXPECT_EQ(action.emit, AggregateAction::Emit::kSum);
    EXPECT_EQ(header.check, kHuge - 5);
    // The second level adds it to the other group's.
    wire::AtpHeader other = header;
    other.group = 1;
    other.groups = 0b10;
    other.check = 7;
    EXPECT_EQ(table.on_gradient(header, Time()).cause, AggregateAction::Cause::kStored);
    EXPECT_EQ(table.on_gradient(other, Time()).emit, AggregateAction::Emit::kSum);
    EXPECT_EQ(other.check, 1U);
  }
}

TEST(AggregateTable, check__of_a_duplicate_is_not_added_and_a_flushed_sum_takes_it_along) {
  AggregateTable table = table_of();
  wire::AtpHeader header = gradient(0, 5);
  (void)table.on_gradient(header, Time());
  header = gradient(0, 5);
  EXPECT_EQ(table.on_gradient(header, Time()).cause, AggregateAction::Cause::kDuplicate);
  header = gradient(1, 6, true);
  EXPECT_EQ(table.on_gradient(header, Time()).cause, AggregateAction::Cause::kFlushed);
  EXPECT_EQ(header.check, 11U);
  header = gradient(1, 6, true);
  EXPECT_EQ(table.on_gradient(header, Time()).cause, AggregateAction::Cause::kResent);
  EXPECT_EQ(header.check, 6U);
}

}  // namespace
}  // namespace thalweg::switches::aggregate_check_test
