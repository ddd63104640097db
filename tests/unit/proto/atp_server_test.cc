#include "proto/atp/server.h"

#include <gtest/gtest.h>

namespace thalweg::proto {
namespace {

using Cause = AtpServerAction::Cause;
using Payload = AtpServerAction::Payload;

constexpr Time kNow = Time::at(Duration::milliseconds(1));

// Groups of 3 and 2, a window of 4.
AtpServerOptions options_of() {
  AtpServerOptions options;
  options.job = 3;
  options.groups = {3, 2};
  options.window = 4;
  options.deadline = Duration::milliseconds(100);
  return options;
}

wire::AtpHeader gradient(std::uint32_t groups, std::uint8_t group, std::uint32_t workers,
                         std::uint64_t sequence = 0) {
  wire::AtpHeader header;
  header.level = wire::kAtpServerLevel;
  header.job = 3;
  header.sequence = sequence;
  header.groups = groups;
  header.workers = workers;
  header.group = group;
  header.fan_in = group == 0 ? 3 : 2;
  header.group_count = 2;
  header.elements = 64;
  header.resend = workers != 0;
  return header;
}
wire::AtpHeader whole(std::uint32_t groups, std::uint64_t sequence = 0) {
  return gradient(groups, 0, 0, sequence);
}

std::vector<wire::AtpHeader> drain(AtpServer& server) {
  std::vector<wire::AtpHeader> all;
  AtpServerTransmit transmit;
  while (server.poll_transmit(transmit)) all.push_back(transmit.header);
  return all;
}

TEST(AtpServer, on_gradient__table_of_what_is_held_and_what_is_brought) {
  struct Row {
    std::vector<wire::AtpHeader> before;
    wire::AtpHeader packet;
    Payload payload;
    Cause cause;
  };
  const std::vector<Row> rows = {
      {{}, gradient(0, 0, 0b001), Payload::kStore, Cause::kStored},
      {{gradient(0, 0, 0b001)}, gradient(0, 0, 0b001), Payload::kNothing, Cause::kDuplicate},
      {{gradient(0, 0, 0b001)}, gradient(0, 0, 0b110), Payload::kAdd, Cause::kAdded},
      {{gradient(0, 0, 0b001)}, gradient(0, 1, 0b01), Payload::kAdd, Cause::kAdded},
      {{gradient(0, 0, 0b001)}, gradient(0, 0, 0b011), Payload::kStore, Cause::kReplaced},
      {{gradient(0, 0, 0b011)}, gradient(0, 0, 0b001), Payload::kNothing, Cause::kDuplicate},
      {{gradient(0, 0, 0b101)}, gradient(0, 0, 0b011), Payload::kNothing, Cause::kOverlap},
      {{gradient(0, 0, 0b011)}, whole(0b01), Payload::kStore, Cause::kReplaced},
      {{gradient(0, 0, 0b011)}, gradient(0b10, 0, 0b100), Payload::kAdd, Cause::kAdded},
      {{whole(0b01)}, gradient(0b10, 0, 0b100), Payload::kNothing, Cause::kOverlap},
      {{gradient(0, 0, 0b001), gradient(0, 1, 0b10)},
       whole(0b01),
       Payload::kNothing,
       Cause::kOverlap},
      {{gradient(0, 0, 0b001), gradient(0, 1, 0b10)},
       whole(0b11),
       Payload::kStore,
       Cause::kReplaced},
  };
  for (std::size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(i);
    AtpServer server(options_of());
    for (const wire::AtpHeader& packet : rows[i].before) (void)server.on_gradient(packet, kNow);
    const AtpServerAction action = server.on_gradient(rows[i].packet, kNow);
    EXPECT_EQ(action.payload, rows[i].payload);
    EXPECT_STREQ(name_of(action.cause), name_of(rows[i].cause));
    EXPECT_GE(server.count(rows[i].cause), 1U);
  }
}

TEST(AtpServer, on_gradient__completes_once_and_sends_to_all) {
  AtpServer server(options_of());
  wire::AtpHeader packet = gradient(0b10, 0, 0b011);
  packet.next_exponent = 5;
  packet.needed_exponent = -7;
  packet.congested = true;
  (void)server.on_gradient(packet, kNow);
  EXPECT_TRUE(drain(server).empty());
  EXPECT_EQ(server.open(), 1U);
  packet = gradient(0, 0, 0b100);
  packet.next_exponent = 3;
  packet.needed_exponent = -2;
  const AtpServerAction action = server.on_gradient(packet, kNow);
  EXPECT_TRUE(action.completed);
  server.mark_saturated(action.slot);
  const auto sent = drain(server);
  ASSERT_EQ(sent.size(), 1U);
  wire::AtpHeader expected;
  expected.kind = wire::AtpKind::kParameter;
  expected.job = 3;
  expected.groups = 0b11;
  expected.fan_in = 3;
  expected.group_count = 2;
  expected.elements = 64;
  expected.next_exponent = 5;
  expected.needed_exponent = -2;
  expected.congested = true;
  expected.saturated = true;
  EXPECT_EQ(sent[0], expected);
  EXPECT_EQ(server.open(), 0U);
  EXPECT_FALSE(server.next_timeout());
}

// Worker 1 of group 0 is in the server's process.
TEST(AtpServer, on_gradient__its_own_worker_is_apart_from_its_group) {
  AtpServerOptions options = options_of();
  options.seat = AtpSeat{0, 1};
  AtpServer server(options);
  EXPECT_EQ(server.on_gradient(whole(0b01), kNow).cause, Cause::kMismatch) << "a fan-in of 3";
  wire::AtpHeader others = whole(0b11);
  others.fan_in = 2;
  EXPECT_EQ(server.on_gradient(others, kNow).cause, Cause::kStored);
  EXPECT_TRUE(drain(server).empty());
  wire::AtpHeader own = gradient(0, 0, 0b010);
  own.fan_in = 2;
  const AtpServerAction action = server.on_gradient(own, kNow);
  EXPECT_EQ(action.cause, Cause::kAdded);
  EXPECT_TRUE(action.completed);
  const auto sent = drain(server);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].groups, 0b11U);
  EXPECT_EQ(sent[0].fan_in, 2);
  EXPECT_EQ(wire::check_atp_header(sent[0]), wire::WireError::kNone);
}

// The decoder allows one place beyond the fan-in.
TEST(AtpServer, on_gradient__a_worker_that_the_group_does_not_have_is_a_mismatch) {
  AtpServer server(options_of());
  const wire::AtpHeader stranger = gradient(0, 1, 0b100);
  ASSERT_EQ(wire::check_atp_header(stranger), wire::WireError::kNone);
  EXPECT_EQ(server.on_gradient(stranger, kNow).cause, Cause::kMismatch);
}

TEST(AtpServerOptions, validate__the_own_worker_has_company) {
  AtpServerOptions options = options_of();
  options.seat = AtpSeat{1, 1};
  EXPECT_TRUE(options.validate().ok());
  options.groups = {3, 1};
  options.seat = AtpSeat{1, 0};
  EXPECT_FALSE(options.validate().ok());
  options.seat = AtpSeat{2, 0};
  EXPECT_FALSE(options.validate().ok());
}

TEST(AtpServer, on_gradient__a_retransmission_gets_the_sum_again) {
  AtpServer server(options_of());
  (void)server.on_gradient(whole(0b11), kNow);
  (void)drain(server);
  EXPECT_EQ(server.on_gradient(whole(0b11), kNow).cause, Cause::kDuplicate);
  EXPECT_TRUE(drain(server).empty());
  EXPECT_EQ(server.on_gradient(gradient(0, 1, 0b10), kNow).cause, Cause::kAnswered);
  const auto sent = drain(server);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].group, 1);
  EXPECT_EQ(sent[0].workers, 0b10U);
  EXPECT_EQ(sent[0].groups, 0U);
  EXPECT_EQ(wire::check_atp_header(sent[0]), wire::WireError::kNone);
}

TEST(AtpServer, on_gradient__two_windows_are_kept_and_no_more) {
  AtpServer server(options_of());
  const std::uint64_t slots = server.slots();
  EXPECT_GE(slots, 8U);
  for (std::uint64_t s = 0; s < 8; ++s) {
    EXPECT_TRUE(server.on_gradient(whole(0b11, s), kNow).completed);
  }
  EXPECT_EQ(server.on_gradient(gradient(0, 0, 1, 0), kNow).cause, Cause::kAnswered);
  EXPECT_EQ(server.on_gradient(whole(0b01, slots), kNow).cause, Cause::kStored);
  EXPECT_EQ(server.on_gradient(gradient(0, 0, 1, 0), kNow).cause, Cause::kStale);
  EXPECT_EQ(server.on_gradient(whole(0b01, 2 * slots), kNow).cause, Cause::kOutOfWindow);
  EXPECT_TRUE(server.on_gradient(whole(0b10, slots), kNow).completed);
}

TEST(AtpServer, on_gradient__bad_input_is_counted_and_changes_nothing) {
  AtpServerOptions options = options_of();
  options.servers = 2;
  AtpServer server(options);
  (void)server.on_gradient(whole(0b01), kNow);
  std::string before;
  server.encode_state(before);
  const auto expect_mismatch = [&](auto change) {
    wire::AtpHeader wrong = whole(0b10);
    change(wrong);
    EXPECT_EQ(server.on_gradient(wrong, kNow).cause, Cause::kMismatch);
  };
  expect_mismatch([](wire::AtpHeader& h) { h.job = 4; });
  expect_mismatch([](wire::AtpHeader& h) { h.kind = wire::AtpKind::kUpdate; });
  expect_mismatch([](wire::AtpHeader& h) { h.fan_in = 4; });
  expect_mismatch([](wire::AtpHeader& h) { h.group_count = 3; });
  expect_mismatch([](wire::AtpHeader& h) { h.sequence = 1; });
  expect_mismatch([](wire::AtpHeader& h) { h.elements = 63; });
  expect_mismatch([](wire::AtpHeader& h) { h.exponent = 1; });
  EXPECT_EQ(server.count(Cause::kMismatch), 7U);
  std::string after;
  server.encode_state(after);
  EXPECT_EQ(before, after);
}

TEST(AtpServer, on_timeout__names_who_is_missing_at_the_oldest_sequence) {
  AtpServer server(options_of());
  (void)server.on_gradient(whole(0b10, 1), kNow);
  (void)server.on_gradient(gradient(0, 0, 0b101, 0), kNow);
  const Time due = kNow + Duration::milliseconds(100);
  EXPECT_EQ(server.next_timeout(), due);
  server.on_timeout(due - Duration::milliseconds(1));
  EXPECT_TRUE(drain(server).empty());
  server.on_timeout(due);
  AtpServerFailure failure;
  ASSERT_TRUE(server.poll_event(failure));
  EXPECT_EQ(
      failure.error,
      "job 3: server 0: sequence 0 waits for 100ms for workers: all of group 1, 1 of group 0");
  auto sent = drain(server);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].kind, wire::AtpKind::kAbort);
  EXPECT_EQ(sent[0].workers, 0b010U);
  EXPECT_EQ(sent[0].groups, 0b10U);
  EXPECT_EQ(wire::check_atp_header(sent[0]), wire::WireError::kNone);
  EXPECT_FALSE(server.next_timeout());
  // A worker that asks again gets the abort again, and a late contribution still counts.
  EXPECT_EQ(server.on_gradient(gradient(0, 0, 0b001, 0), kNow).cause, Cause::kOverdue);
  sent = drain(server);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].kind, wire::AtpKind::kAbort);
  EXPECT_TRUE(server.on_gradient(gradient(0b10, 0, 0b010, 0), kNow).completed);
  EXPECT_EQ(drain(server)[0].kind, wire::AtpKind::kParameter);
}

TEST(AtpServer, on_timeout__a_completion_is_progress) {
  AtpServer server(options_of());
  (void)server.on_gradient(whole(0b01, 0), kNow);
  (void)server.on_gradient(whole(0b01, 1), kNow);
  const Time later = kNow + Duration::milliseconds(90);
  EXPECT_TRUE(server.on_gradient(whole(0b10, 0), later).completed);
  EXPECT_EQ(server.next_timeout(), later + Duration::milliseconds(100));
}

TEST(AtpServerOptions, validate__names_field_value_and_range) {
  AtpServerOptions options = options_of();
  options.groups = {3, 0};
  EXPECT_EQ(options.validate().error().message(), "groups = 0: must be from 1 to 32 workers each");
  options = options_of();
  options.groups.clear();
  EXPECT_EQ(options.validate().error().message(), "groups = 0: must be from 1 to 32 groups");
  options = options_of();
  options.index = 1;
  EXPECT_EQ(options.validate().error().message(), "index = 1: must be below servers");
}

}  // namespace
}  // namespace thalweg::proto
