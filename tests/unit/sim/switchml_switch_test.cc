#include "sim/baselines/switchml_switch.h"

#include <gtest/gtest.h>

namespace thalweg::sim {
namespace {

using Cause = switches::AggregateAction::Cause;
using Emit = switches::AggregateAction::Emit;
using Payload = switches::AggregateAction::Payload;

constexpr std::uint32_t kSwitchJob = 4;

SwitchmlTable table_of(std::uint32_t slots) {
  switches::AggregateOptions options;
  options.slots = slots;
  return SwitchmlTable(options);
}

wire::AtpHeader update(unsigned w, std::uint64_t sequence) {
  wire::AtpHeader header;
  header.kind = wire::AtpKind::kUpdate;
  header.job = kSwitchJob;
  header.sequence = sequence;
  header.workers = wire::atp_bit(w);
  header.fan_in = 2;
  header.elements = 32;
  return header;
}

// What the table did with a packet that was sent.
struct Answer {
  switches::AggregateAction action;
  wire::AtpHeader header;
};
Answer send(SwitchmlTable& table, wire::AtpHeader header) {
  const switches::AggregateAction action = table.on_update(header);
  return {action, header};
}

TEST(SwitchmlTable, on_update__rounds_alternate_between_two_slots) {
  SwitchmlTable table = table_of(4);
  ASSERT_TRUE(table.add_job({kSwitchJob, 2, 2}).ok());
  std::uint32_t first_slot = 0;
  for (std::uint64_t sequence = 0; sequence <= 4; sequence += 2) {
    const Answer first = send(table, update(1, sequence));
    EXPECT_EQ(first.action.payload, Payload::kStore);
    EXPECT_EQ(first.action.emit, Emit::kNothing);
    const Answer last = send(table, update(0, sequence));
    EXPECT_EQ(last.action.payload, Payload::kAdd);
    EXPECT_EQ(last.action.emit, Emit::kSumToWorkers);
    EXPECT_EQ(last.action.slot, first.action.slot);
    EXPECT_EQ(last.header.kind, wire::AtpKind::kResult);
    EXPECT_EQ(last.header.workers, 0b11U);
    if (sequence == 0) first_slot = first.action.slot;
    EXPECT_EQ(first.action.slot == first_slot, sequence != 2);
  }
}

TEST(SwitchmlTable, on_update__repeats_a_result_and_drops_what_is_late) {
  SwitchmlTable table = table_of(2);
  ASSERT_TRUE(table.add_job({kSwitchJob, 2, 1}).ok());
  (void)send(table, update(0, 0));
  EXPECT_EQ(send(table, update(0, 0)).action.cause, Cause::kDuplicate);
  (void)send(table, update(1, 0));
  const Answer again = send(table, update(1, 0));
  EXPECT_EQ(again.action.emit, Emit::kSumToSender);
  EXPECT_EQ(again.action.payload, Payload::kNothing);
  EXPECT_EQ(again.header.workers, 0b10U);
  // The other slot is used, so the result of sequence 0 is still available.
  (void)send(table, update(0, 1));
  EXPECT_EQ(send(table, update(1, 0)).action.emit, Emit::kSumToSender);
  EXPECT_EQ(send(table, update(0, 3)).action.cause, Cause::kOutOfWindow);
  (void)send(table, update(1, 1));
  (void)send(table, update(1, 2));
  EXPECT_EQ(send(table, update(0, 0)).action.cause, Cause::kStale);
  EXPECT_EQ(send(table, update(0, 0)).action.emit, Emit::kNothing);
}

TEST(SwitchmlTable, on_update__bad_input_is_counted_and_changes_nothing) {
  SwitchmlTable table = table_of(2);
  ASSERT_TRUE(table.add_job({kSwitchJob, 2, 1}).ok());
  (void)send(table, update(0, 0));
  std::string before;
  table.encode_state(before);
  const auto cause_of = [&](auto change) {
    wire::AtpHeader wrong = update(1, 0);
    change(wrong);
    return table.on_update(wrong).cause;
  };
  EXPECT_EQ(cause_of([](wire::AtpHeader& h) { h.job = 5; }), Cause::kUnknownJob);
  EXPECT_EQ(cause_of([](wire::AtpHeader& h) { h.kind = wire::AtpKind::kGradient; }),
            Cause::kBadKind);
  EXPECT_EQ(cause_of([](wire::AtpHeader& h) { h.fan_in = 3; }), Cause::kMismatch);
  EXPECT_EQ(cause_of([](wire::AtpHeader& h) { h.elements = 31; }), Cause::kMismatch);
  EXPECT_EQ(cause_of([](wire::AtpHeader& h) { h.exponent = 3; }), Cause::kMismatch);
  EXPECT_EQ(cause_of([](wire::AtpHeader& h) { h.elements = 65; }), Cause::kTooLarge);
  EXPECT_EQ(cause_of([](wire::AtpHeader& h) { h.workers = 0b11; }), Cause::kOverlap);
  std::string after;
  table.encode_state(after);
  EXPECT_EQ(before, after);
  EXPECT_EQ(table.unknown().of(Cause::kUnknownJob), 1U);
}

TEST(SwitchmlTable, add_job__memory_is_fixed_and_given_back) {
  SwitchmlTable table = table_of(10);
  ASSERT_TRUE(table.add_job({1, 2, 2}).ok());
  ASSERT_TRUE(table.add_job({2, 2, 2}).ok());
  EXPECT_EQ(table.add_job({2, 2, 1}).error().message(), "job 2 is here already");
  EXPECT_EQ(table.add_job({3, 2, 2}).error().message(),
            "pool = 2 of job 3: no 4 slots side by side are left of 10");
  EXPECT_EQ(table.add_job({3, 33, 1}).error().message(),
            "workers = 33 of job 3: must be from 1 to 32");
  EXPECT_EQ(table.add_job({3, 2, 6}).error().message(),
            "pool = 6 of job 3: must be from 1 to 5, half the switch's slots");
  EXPECT_EQ(table.slots_in_use(), 8U);
  EXPECT_TRUE(table.remove_job(1));
  EXPECT_FALSE(table.remove_job(1));
  EXPECT_TRUE(table.add_job({3, 2, 2}).ok());
}

}  // namespace
}  // namespace thalweg::sim
