// What a switch reports to a worker whose packet it misses.
#include <gtest/gtest.h>

#include "switch/aggregation/aggregate.h"

namespace thalweg::switches {
namespace {

constexpr std::uint32_t kReportJob = 5;

AggregateTable reporting(std::uint32_t reordering) {
  AggregateTable table({.slots = 16, .reordering = reordering});
  AggregateJob job;
  job.id = kReportJob;
  job.groups = 1;
  job.window = 4;
  EXPECT_TRUE(table.add_job(job).ok());
  return table;
}

wire::AtpHeader first_send(unsigned w, std::uint64_t sequence) {
  wire::AtpHeader header;
  header.job = kReportJob;
  header.sequence = sequence;
  header.workers = wire::atp_bit(w);
  header.fan_in = 3;
  header.elements = 64;
  return header;
}

// What the table reports for this packet, and then does with it.
std::optional<wire::AtpHeader> arrived(AggregateTable& table, wire::AtpHeader header) {
  const auto missing = table.missing_before(header);
  (void)table.on_gradient(header, Time());
  return missing;
}

TEST(AggregateTable, missing_before__names_what_the_sender_has_lost) {
  AggregateTable table = reporting(2);
  for (std::uint64_t s = 0; s < 3; ++s) EXPECT_FALSE(arrived(table, first_send(0, s)));
  // Worker 1's sequence 0 is lost. Worker 2 has not sent anything yet, which is no loss.
  EXPECT_FALSE(arrived(table, first_send(1, 1)));
  const auto missing = arrived(table, first_send(1, 2));
  ASSERT_TRUE(missing);
  EXPECT_EQ(wire::check_atp_header(*missing), wire::WireError::kNone);
  EXPECT_EQ(missing->kind, wire::AtpKind::kMissing);
  EXPECT_EQ(missing->job, kReportJob);
  EXPECT_EQ(missing->sequence, 0U);
  EXPECT_EQ(missing->workers, wire::atp_bit(1));
  EXPECT_EQ(table.counters(kReportJob)->reported, 1U);
  EXPECT_FALSE(arrived(table, first_send(1, 0)));
  EXPECT_FALSE(arrived(table, first_send(1, 2)));
}

// Worker 1 is server 0 of 2, and adds its own gradients of even sequences itself.
TEST(AggregateTable, missing_before__nothing_that_a_server_keeps_for_itself) {
  AggregateTable table = reporting(2);
  const AggregateTable::OwnServer own{.index = 0, .servers = 2};
  for (std::uint64_t s = 0; s < 4; ++s) EXPECT_FALSE(arrived(table, first_send(0, s)));
  EXPECT_FALSE(table.missing_before(first_send(1, 2), own));
  const auto missing = table.missing_before(first_send(1, 3), own);
  ASSERT_TRUE(missing);
  EXPECT_EQ(missing->sequence, 1U);
  EXPECT_EQ(table.counters(kReportJob)->reported, 1U);
}

// The group has four workers; worker 1 is the server of the sequence.
TEST(AggregateTable, on_gradient__a_group_is_whole_without_the_worker_that_its_server_adds) {
  AggregateTable table = reporting(3);
  for (const unsigned w : {0U, 3U, 2U}) {
    wire::AtpHeader header = first_send(w, 0);
    ASSERT_EQ(wire::check_atp_header(header), wire::WireError::kNone);
    const AggregateAction action = table.on_gradient(header, Time());
    if (w != 2) {
      EXPECT_EQ(action.emit, AggregateAction::Emit::kNothing) << w;
      continue;
    }
    EXPECT_EQ(action.cause, AggregateAction::Cause::kCompleted);
    EXPECT_EQ(header.groups, 1U);
    EXPECT_EQ(header.workers, 0U);
    EXPECT_EQ(wire::check_atp_header(header), wire::WireError::kNone);
  }
}

// The group has three workers of which the fan-in counts two. Whoever sends this is wrong.
TEST(AggregateTable, on_gradient__more_contributions_than_the_fan_in_are_dropped) {
  for (const bool resend : {false, true}) {
    AggregateTable table = reporting(3);
    wire::AtpHeader one = first_send(0, 0);
    one.fan_in = 2;
    EXPECT_EQ(table.on_gradient(one, Time()).cause, AggregateAction::Cause::kStored);
    wire::AtpHeader two = first_send(1, 0);
    two.fan_in = 2;
    two.workers = 0b110;
    two.resend = resend;
    ASSERT_EQ(wire::check_atp_header(two), wire::WireError::kNone);
    const AggregateAction action = table.on_gradient(two, Time());
    EXPECT_EQ(action.cause, AggregateAction::Cause::kMismatch);
    EXPECT_EQ(action.emit, AggregateAction::Emit::kNothing);
  }
}

TEST(AggregateTable, missing_before__is_silent_where_nothing_waits) {
  AggregateTable table = reporting(1);
  (void)arrived(table, first_send(0, 0));
  wire::AtpHeader resend = first_send(1, 1);
  resend.resend = true;
  wire::AtpHeader passing = first_send(1, 1);
  passing.collision = true;
  wire::AtpHeader other = first_send(1, 1);
  other.job = kReportJob + 1;
  wire::AtpHeader sum = first_send(1, 1);
  sum.level = wire::kAtpServerLevel;
  sum.collision = true;
  for (const wire::AtpHeader& header : {resend, passing, other, sum, first_send(1, 3)}) {
    EXPECT_FALSE(table.missing_before(header));
  }
  EXPECT_TRUE(table.missing_before(first_send(1, 1)));
  AggregateTable silent = reporting(0);
  (void)arrived(silent, first_send(0, 0));
  EXPECT_FALSE(silent.missing_before(first_send(1, 1)));
}

}  // namespace
}  // namespace thalweg::switches
