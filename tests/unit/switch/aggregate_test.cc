#include "switch/aggregation/aggregate.h"

#include <gtest/gtest.h>

namespace thalweg::switches {
namespace {

using Cause = AggregateAction::Cause;
using Emit = AggregateAction::Emit;
using Payload = AggregateAction::Payload;

constexpr std::uint32_t kJob = 7;
constexpr Time kNow = Time::at(Duration::milliseconds(5));

AggregateTable table_of(std::uint32_t slots, const AggregateJob& job = {kJob, 1, false, 8, 0}) {
  AggregateOptions options;
  options.slots = slots;
  options.lifetime = Duration::milliseconds(10);
  AggregateTable table(options);
  EXPECT_TRUE(table.add_job(job).ok());
  return table;
}

// A first-level gradient of worker `w` of 3, in group 0 of 2.
wire::AtpHeader gradient(unsigned w, std::uint64_t sequence = 0, bool resend = false) {
  wire::AtpHeader header;
  header.job = kJob;
  header.sequence = sequence;
  header.workers = wire::atp_bit(w);
  header.fan_in = 3;
  header.group_count = 2;
  header.elements = 64;
  header.resend = resend;
  return header;
}

// The sum of a whole group, for the second level.
wire::AtpHeader group_sum(std::uint8_t group, std::uint64_t sequence = 0, bool resend = false) {
  wire::AtpHeader header = gradient(0, sequence, resend);
  header.level = wire::kAtpSecondLevel;
  header.group = group;
  header.groups = wire::atp_bit(group);
  header.workers = 0;
  return header;
}

wire::AtpHeader parameter(std::uint64_t sequence) {
  wire::AtpHeader header = gradient(0, sequence);
  header.kind = wire::AtpKind::kParameter;
  header.groups = 0b11;
  header.workers = 0;
  return header;
}

void expect(const AggregateAction& action, Payload payload, Emit emit, Cause cause, bool freed) {
  EXPECT_EQ(action.payload, payload);
  EXPECT_EQ(action.emit, emit);
  EXPECT_STREQ(name_of(action.cause), name_of(cause));
  EXPECT_EQ(action.freed, freed);
}

TEST(AggregateTable, on_gradient__sums_and_sends_the_sum_once) {
  AggregateTable table = table_of(4);
  wire::AtpHeader header = gradient(0);
  header.next_exponent = 9;
  header.needed_exponent = -5;
  expect(table.on_gradient(header, kNow), Payload::kStore, Emit::kNothing, Cause::kStored, false);
  header = gradient(2);
  header.congested = true;
  header.needed_exponent = 6;
  expect(table.on_gradient(header, kNow), Payload::kAdd, Emit::kNothing, Cause::kAdded, false);
  header = gradient(2);
  expect(table.on_gradient(header, kNow), Payload::kNothing, Emit::kNothing, Cause::kDuplicate,
         false);
  header = gradient(1);
  expect(table.on_gradient(header, kNow), Payload::kAdd, Emit::kSum, Cause::kCompleted, false);
  wire::AtpHeader expected = group_sum(0);
  expected.congested = true;
  expected.next_exponent = 9;
  expected.needed_exponent = 6;
  EXPECT_EQ(header, expected);
  header = gradient(1);
  expect(table.on_gradient(header, kNow), Payload::kNothing, Emit::kNothing, Cause::kDuplicate,
         false);
  EXPECT_EQ(table.slots_in_use(), 1U);
  expect(table.on_parameter(parameter(0)), Payload::kNothing, Emit::kPacket, Cause::kFreed, false);
  expect(table.on_parameter(parameter(0)), Payload::kNothing, Emit::kPacket, Cause::kUnneeded,
         false);
  EXPECT_EQ(table.slots_in_use(), 0U);
  EXPECT_EQ(table.counters(kJob)->of(Cause::kDuplicate), 2U);
  EXPECT_EQ(table.counters(kJob)->most_slots, 1U);
}

TEST(AggregateTable, on_gradient__a_collision_passes_both_levels) {
  AggregateTable table = table_of(1, {kJob, 1, true, 8, 0});
  wire::AtpHeader header = gradient(0, 0);
  (void)table.on_gradient(header, kNow);
  header = gradient(0, 1);
  expect(table.on_gradient(header, kNow), Payload::kNothing, Emit::kPacket, Cause::kCollision,
         false);
  EXPECT_TRUE(header.collision);
  EXPECT_FALSE(header.resend);
  EXPECT_EQ(header.level, wire::kAtpSecondLevel);
  EXPECT_EQ(header.workers, 1U);
  (void)table.on_parameter(parameter(0));
  expect(table.on_gradient(header, kNow), Payload::kNothing, Emit::kPacket, Cause::kFlagged, false);
  EXPECT_EQ(table.counters(kJob)->of(Cause::kCollision), 1U);
  EXPECT_EQ(header.level, wire::kAtpServerLevel);
  EXPECT_EQ(table.slots_in_use(), 0U);
}

TEST(AggregateTable, on_gradient__a_retransmission_takes_the_sum_along) {
  AggregateTable table = table_of(4);
  wire::AtpHeader header = gradient(0);
  (void)table.on_gradient(header, kNow);
  header = gradient(2, 0, true);
  expect(table.on_gradient(header, kNow), Payload::kAdd, Emit::kSum, Cause::kFlushed, true);
  EXPECT_EQ(header.workers, 0b101U);
  EXPECT_EQ(header.groups, 0U);
  EXPECT_TRUE(header.resend);
  EXPECT_EQ(header.level, wire::kAtpSecondLevel);
  EXPECT_EQ(table.slots_in_use(), 0U);
  EXPECT_EQ(table.counters(kJob)->partial_sums, 1U);

  // The slot has this contribution: the sum leaves, and nothing is added.
  header = gradient(1);
  (void)table.on_gradient(header, kNow);
  header = gradient(2);
  (void)table.on_gradient(header, kNow);
  header = gradient(1, 0, true);
  expect(table.on_gradient(header, kNow), Payload::kNothing, Emit::kSum, Cause::kFlushed, true);
  EXPECT_EQ(header.workers, 0b110U);

  // Without a slot the packet goes on alone and claims none.
  header = gradient(1, 0, true);
  expect(table.on_gradient(header, kNow), Payload::kNothing, Emit::kPacket, Cause::kResent, false);
  EXPECT_EQ(header.workers, 0b010U);
  EXPECT_EQ(table.slots_in_use(), 0U);
}

TEST(AggregateTable, on_gradient__a_complete_sum_is_sent_again_whole) {
  AggregateTable table = table_of(4);
  wire::AtpHeader header;
  for (unsigned w = 0; w < 3; ++w) {
    header = gradient(w);
    (void)table.on_gradient(header, kNow);
  }
  header = gradient(1, 0, true);
  expect(table.on_gradient(header, kNow), Payload::kNothing, Emit::kSum, Cause::kFlushed, true);
  EXPECT_EQ(header.groups, 1U);
  EXPECT_EQ(header.workers, 0U);
  EXPECT_EQ(table.counters(kJob)->partial_sums, 0U);
}

TEST(AggregateTable, on_gradient__second_level_takes_parts_of_groups_along) {
  AggregateTable table = table_of(4, {kJob, 0, true, 8, 0});
  wire::AtpHeader header = group_sum(1);
  expect(table.on_gradient(header, kNow), Payload::kStore, Emit::kNothing, Cause::kStored, false);
  header = gradient(2, 0, true);
  header.level = wire::kAtpSecondLevel;
  expect(table.on_gradient(header, kNow), Payload::kAdd, Emit::kSum, Cause::kFlushed, true);
  EXPECT_EQ(header.groups, 0b10U);
  EXPECT_EQ(header.workers, 0b100U);
  EXPECT_EQ(header.group, 0);
  EXPECT_EQ(header.level, wire::kAtpServerLevel);
  EXPECT_EQ(wire::check_atp_header(header), wire::WireError::kNone);

  // The slot has the whole group: the sum leaves, and nothing is added.
  header = group_sum(0);
  (void)table.on_gradient(header, kNow);
  header = gradient(2, 0, true);
  header.level = wire::kAtpSecondLevel;
  expect(table.on_gradient(header, kNow), Payload::kNothing, Emit::kSum, Cause::kFlushed, true);
  EXPECT_EQ(header.groups, 0b01U);
  EXPECT_EQ(header.workers, 0U);
}

TEST(AggregateTable, on_gradient__second_level_as_in_the_paper_passes_and_frees) {
  AggregateOptions options;
  options.slots = 4;
  options.pass_second_level_resends = true;
  AggregateTable table(options);
  ASSERT_TRUE(table.add_job({kJob, 0, true, 8, 0}).ok());
  wire::AtpHeader header = group_sum(1);
  (void)table.on_gradient(header, kNow);
  header = group_sum(0, 0, true);
  expect(table.on_gradient(header, kNow), Payload::kNothing, Emit::kPacket, Cause::kResent, false);
  EXPECT_EQ(header.groups, 0b01U);
  EXPECT_EQ(table.slots_in_use(), 0U);
  EXPECT_EQ(table.counters(kJob)->discarded, 1U);
}

TEST(AggregateTable, on_gradient__what_is_not_for_this_switch_passes_unchanged) {
  AggregateTable table = table_of(4, {kJob, 0b10, false, 8, 0});
  wire::AtpHeader header = gradient(0);
  const wire::AtpHeader before = header;
  expect(table.on_gradient(header, kNow), Payload::kNothing, Emit::kPacket, Cause::kNotHere, false);
  EXPECT_EQ(header, before);
  header = group_sum(0);
  expect(table.on_gradient(header, kNow), Payload::kNothing, Emit::kPacket, Cause::kNotHere, false);
  EXPECT_EQ(header, group_sum(0));
}

TEST(AggregateTable, on_gradient__a_group_of_one_needs_no_slot) {
  AggregateTable table = table_of(4);
  wire::AtpHeader header = gradient(0);
  header.fan_in = 1;
  expect(table.on_gradient(header, kNow), Payload::kNothing, Emit::kPacket, Cause::kAlone, false);
  EXPECT_EQ(header.groups, 1U);
  EXPECT_EQ(header.workers, 0U);
  EXPECT_FALSE(header.collision);
}

TEST(AggregateTable, on_gradient__bad_input_is_counted_and_changes_nothing) {
  AggregateTable table = table_of(4);
  wire::AtpHeader header = gradient(0);
  (void)table.on_gradient(header, kNow);
  std::string before;
  table.encode_state(before);

  header = gradient(1);
  header.job = 8;
  expect(table.on_gradient(header, kNow), Payload::kNothing, Emit::kNothing, Cause::kUnknownJob,
         false);
  expect(table.on_parameter(header), Payload::kNothing, Emit::kNothing, Cause::kUnknownJob, false);
  EXPECT_EQ(table.unknown().of(Cause::kUnknownJob), 2U);
  const auto mismatch = [&](auto change) {
    wire::AtpHeader wrong = gradient(1);
    change(wrong);
    expect(table.on_gradient(wrong, kNow), Payload::kNothing, Emit::kNothing, Cause::kMismatch,
           false);
  };
  mismatch([](wire::AtpHeader& h) { h.fan_in = 4; });
  mismatch([](wire::AtpHeader& h) { h.elements = 63; });
  mismatch([](wire::AtpHeader& h) { h.exponent = 1; });
  mismatch([](wire::AtpHeader& h) { h.resend = true, h.fan_in = 4; });
  header = parameter(0);
  header.kind = wire::AtpKind::kResult;
  expect(table.on_parameter(header), Payload::kNothing, Emit::kNothing, Cause::kBadKind, false);
  expect(table.on_gradient(header, kNow), Payload::kNothing, Emit::kNothing, Cause::kBadKind,
         false);
  EXPECT_EQ(table.counters(kJob)->of(Cause::kMismatch), 4U);

  std::string after;
  table.encode_state(after);
  EXPECT_EQ(before, after);
}

TEST(AggregateTable, on_gradient__too_many_elements_pass) {
  AggregateTable table = table_of(4);
  wire::AtpHeader header = gradient(0);
  header.elements = 65;
  expect(table.on_gradient(header, kNow), Payload::kNothing, Emit::kPacket, Cause::kTooLarge,
         false);
  EXPECT_TRUE(header.collision);
}

TEST(AggregateTable, on_gradient__a_job_takes_no_more_than_its_limit) {
  AggregateTable table = table_of(8, {kJob, 1, false, 8, 2});
  for (std::uint64_t s = 0; s < 4; ++s) {
    wire::AtpHeader header = gradient(0, s);
    EXPECT_EQ(table.on_gradient(header, kNow).cause, s < 2 ? Cause::kStored : Cause::kLimited);
  }
  (void)table.on_parameter(parameter(1));
  wire::AtpHeader header = gradient(0, 5);
  EXPECT_EQ(table.on_gradient(header, kNow).cause, Cause::kStored);
  EXPECT_EQ(table.slots_in_use(), 2U);
}

TEST(AggregateTable, on_gradient__sequences_of_a_job_do_not_collide_within_the_table) {
  for (const bool hashed : {false, true}) {
    AggregateOptions options;
    options.slots = 64;
    options.hash_sequences = hashed;
    AggregateTable table(options);
    ASSERT_TRUE(table.add_job({kJob, 1, false, 64, 0}).ok());
    for (std::uint64_t s = 1000; s < 1064; ++s) {
      wire::AtpHeader header = gradient(0, s);
      (void)table.on_gradient(header, kNow);
    }
    const std::uint64_t collisions = table.counters(kJob)->of(Cause::kCollision);
    EXPECT_EQ(collisions == 0, !hashed) << collisions;
  }
}

TEST(AggregateTable, on_gradient__places_of_a_job_lie_apart) {
  AggregateTable table = table_of(64, {kJob, 0b11, true, 16, 0});
  for (std::uint64_t s = 0; s < 21; ++s) {
    for (const std::uint8_t group : {std::uint8_t{0}, std::uint8_t{1}}) {
      wire::AtpHeader header = gradient(0, s);
      header.group = group;
      EXPECT_EQ(table.on_gradient(header, kNow).cause, Cause::kStored) << s;
    }
    wire::AtpHeader header = group_sum(0, s);
    EXPECT_EQ(table.on_gradient(header, kNow).cause, Cause::kStored) << s;
  }
}

TEST(AggregateTable, reclaim__a_sequence_two_windows_back_or_a_lifetime_old) {
  AggregateTable table = table_of(1);
  ASSERT_TRUE(table.add_job({8, 1, false, 8, 0}).ok());
  wire::AtpHeader header = gradient(0, 0);
  (void)table.on_gradient(header, kNow);
  header = gradient(0, 15);
  EXPECT_EQ(table.on_gradient(header, kNow).cause, Cause::kCollision);
  header = gradient(0, 16);
  EXPECT_EQ(table.on_gradient(header, kNow).cause, Cause::kStored);
  EXPECT_EQ(table.counters(kJob)->reclaimed, 1U);
  // An earlier sequence does not take the slot back.
  header = gradient(0, 0);
  EXPECT_EQ(table.on_gradient(header, kNow).cause, Cause::kCollision);

  header = gradient(0, 0);
  header.job = 8;
  EXPECT_EQ(table.on_gradient(header, kNow + Duration::milliseconds(9)).cause, Cause::kCollision);
  header = gradient(0, 0);
  header.job = 8;
  EXPECT_EQ(table.on_gradient(header, kNow + Duration::milliseconds(10)).cause, Cause::kStored);
  EXPECT_EQ(table.counters(kJob)->expired, 1U);
  EXPECT_EQ(table.counters(kJob)->slots, 0U);
  EXPECT_EQ(table.counters(8)->slots, 1U);
}

TEST(AggregateTable, sweep__goes_round_and_frees_what_is_old) {
  AggregateTable table = table_of(4);
  for (std::uint64_t s = 0; s < 4; ++s) {
    wire::AtpHeader header = gradient(0, s);
    (void)table.on_gradient(header, s == 3 ? kNow + Duration::milliseconds(5) : kNow);
  }
  table.sweep(kNow + Duration::milliseconds(10), 2);
  const std::uint32_t after_two = table.slots_in_use();
  EXPECT_LT(after_two, 4U);
  table.sweep(kNow + Duration::milliseconds(10), 2);
  EXPECT_EQ(table.slots_in_use(), 1U);
  table.sweep(kNow + Duration::milliseconds(15), 100);
  EXPECT_EQ(table.slots_in_use(), 0U);
  EXPECT_EQ(table.counters(kJob)->expired, 4U);
}

TEST(AggregateTable, jobs__are_added_once_and_take_their_slots_with_them) {
  AggregateTable table = table_of(4);
  ASSERT_TRUE(table.add_job({3, 1, false, 8, 0}).ok());
  EXPECT_EQ(table.add_job({kJob, 1, false, 8, 0}).error().message(), "job 7 is here already");
  EXPECT_EQ(table.add_job({9, 1, false, 0, 0}).error().message(),
            "window = 0 of job 9: must be above 0");
  wire::AtpHeader header = gradient(0);
  (void)table.on_gradient(header, kNow);
  EXPECT_TRUE(table.remove_job(kJob));
  EXPECT_FALSE(table.remove_job(kJob));
  EXPECT_EQ(table.slots_in_use(), 0U);
  EXPECT_EQ(table.counters(kJob), nullptr);
  header = gradient(0);
  header.job = 3;
  EXPECT_EQ(table.on_gradient(header, kNow).cause, Cause::kStored);
  table.restart();
  EXPECT_EQ(table.slots_in_use(), 0U);
  EXPECT_EQ(table.counters(3)->slots, 0U);
}

TEST(AggregateTable, saturated__stays_with_the_sum) {
  AggregateTable table = table_of(4);
  wire::AtpHeader header = gradient(0);
  const AggregateAction action = table.on_gradient(header, kNow);
  table.mark_saturated(action.slot);
  header = gradient(1, 0, true);
  (void)table.on_gradient(header, kNow);
  EXPECT_TRUE(header.saturated);
  header = gradient(1);
  (void)table.on_gradient(header, kNow);
  header = gradient(2, 0, true);
  (void)table.on_gradient(header, kNow);
  EXPECT_FALSE(header.saturated);
}

TEST(AggregateOptions, validate__names_field_value_and_range) {
  AggregateOptions options;
  options.slots = 0;
  EXPECT_EQ(options.validate().error().message(), "slots = 0: must be from 1 to 67108864");
  options = {};
  options.slot_elements = 4000;
  EXPECT_EQ(options.validate().error().message(), "slot_elements = 4000: must be from 1 to 2048");
  options = {};
  options.lifetime = Duration();
  EXPECT_EQ(options.validate().error().message(), "lifetime = 0ps: must be above 0");
}

}  // namespace
}  // namespace thalweg::switches
