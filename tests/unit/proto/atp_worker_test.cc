#include "proto/atp/worker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "proto/atp_by_hand.h"

namespace thalweg::proto {
namespace {

using namespace atp_by_hand;

TEST(AtpWorker, poll_transmit__a_window_of_blocks_and_no_more) {
  AtpWorkerOptions options = two_workers();
  options.servers = 3;
  AtpWorker worker = started(options, 38);
  const auto sent = drained(worker, at(0));
  ASSERT_EQ(sequences(sent), (Sequences{0, 1, 2, 3, 4, 5, 6, 7}));
  wire::AtpHeader expected = parameter(5);
  expected.kind = wire::AtpKind::kGradient;
  expected.workers = 0b10;
  expected.groups = 0;
  EXPECT_EQ(sent[5].header, expected);
  EXPECT_EQ(wire::check_atp_header(sent[5].header), wire::WireError::kNone);
  EXPECT_EQ(sent[5].server, 2U);
  EXPECT_EQ(sent[5].block.first_element, 20);
  EXPECT_EQ(sent[5].block.cookie, 77U);
  EXPECT_EQ(worker.on_parameter(parameter(0), at(1)).verdict, Verdict::kPlace);
  EXPECT_EQ(worker.on_parameter(parameter(2), at(1)).verdict, Verdict::kPlace);
  EXPECT_EQ(sequences(drained(worker, at(1))), (Sequences{8}));
  EXPECT_EQ(worker.on_parameter(parameter(1), at(1)).verdict, Verdict::kPlace);
  const auto last = drained(worker, at(1));
  ASSERT_EQ(sequences(last), (Sequences{9}));
  EXPECT_EQ(last[0].block.elements, 2);
  EXPECT_EQ(worker.oldest(), 3U);
}

TEST(AtpWorker, on_parameter__places_each_block_once_and_ends_the_tensors) {
  AtpWorker worker = started(two_workers(), 6);
  ASSERT_TRUE(worker.start({4, kOneMs * 30'000, 78}, at(0)).ok());
  (void)drained(worker, at(0));
  EXPECT_EQ(worker.on_parameter(parameter(0), at(1)).block.first_element, 0);
  EXPECT_EQ(worker.on_parameter(parameter(0), at(1)).verdict, Verdict::kOutOfWindow);
  EXPECT_EQ(worker.on_parameter(parameter(1), at(1)).verdict,
            Verdict::kMismatch);  // the block has 2 elements
  const AtpPlacement second = worker.on_parameter(parameter(2), at(2));
  EXPECT_EQ(second.verdict, Verdict::kPlace);
  EXPECT_EQ(second.block.first_element, 0);
  EXPECT_EQ(second.block.cookie, 78U);
  EXPECT_EQ(worker.on_parameter(parameter(2), at(2)).verdict, Verdict::kDuplicate);
  EXPECT_EQ(worker.on_parameter(parameter(3), at(2)).verdict, Verdict::kOutOfWindow);
  wire::AtpHeader other = parameter(1, 2);
  other.job = 4;
  EXPECT_EQ(worker.on_parameter(other, at(2)).verdict, Verdict::kMismatch);
  AtpOutcome outcome;
  ASSERT_TRUE(worker.poll_event(outcome));
  EXPECT_EQ(outcome.cookie, 78U);
  wire::AtpHeader last = parameter(1, 2);
  last.saturated = true;
  EXPECT_EQ(worker.on_parameter(last, at(3)).verdict, Verdict::kPlace);
  ASSERT_TRUE(worker.poll_event(outcome));
  EXPECT_EQ(outcome.cookie, 77U);
  EXPECT_TRUE(outcome.ok());
  EXPECT_TRUE(outcome.saturated);
  EXPECT_EQ(outcome.ended, at(3));
  EXPECT_TRUE(worker.idle());
  EXPECT_EQ(worker.counters().duplicate, 1U);
  EXPECT_EQ(worker.counters().out_of_window, 2U);
  EXPECT_EQ(worker.counters().mismatch, 2U);
}

TEST(AtpWorker, on_parameter__three_later_ones_resend_the_oldest_once) {
  AtpWorker worker = started(two_workers(), 32);
  (void)drained(worker, at(0));
  (void)worker.on_parameter(parameter(1), at(1));
  (void)worker.on_parameter(parameter(2), at(1));
  EXPECT_TRUE(drained(worker, at(1)).empty());
  (void)worker.on_parameter(parameter(3), at(1));
  const auto again = drained(worker, at(1));
  ASSERT_EQ(sequences(again), (Sequences{0}));
  EXPECT_TRUE(again[0].header.resend);
  for (std::uint64_t s = 4; s < 8; ++s) (void)worker.on_parameter(parameter(s), at(1));
  EXPECT_TRUE(drained(worker, at(1)).empty());
  (void)worker.on_parameter(parameter(0), at(1));
  EXPECT_EQ(worker.oldest(), 8U);
  EXPECT_EQ(worker.counters().out_of_sequence, 1U);
}

TEST(AtpWorker, on_timeout__sends_again_ever_more_rarely) {
  AtpWorkerOptions options = two_workers();
  options.recovery.initial = kOneMs * 4;
  options.recovery.most = kOneMs * 20;
  AtpWorker worker = started(options, 4);
  (void)drained(worker, at(0));
  std::vector<std::int64_t> times;
  for (std::int64_t ms = 1; ms <= 80; ++ms) {
    worker.on_timeout(at(ms));
    for (const AtpTransmit& transmit : drained(worker, at(ms))) {
      EXPECT_TRUE(transmit.header.resend);
      times.push_back(ms);
    }
  }
  EXPECT_EQ(times, (std::vector<std::int64_t>{4, 8, 16, 32, 52, 72}));
  EXPECT_EQ(worker.counters().timeouts, 6U);
}

TEST(AtpWorker, on_timeout__follows_what_is_typical_but_not_after_a_pause) {
  AtpWorkerOptions options = two_workers();
  options.recovery.initial = kOneMs * 50;
  AtpWorker worker = started(options, 4 * 100);
  for (std::int64_t i = 0; i < 92; ++i) {
    (void)drained(worker, at(2 * i));
    (void)worker.on_parameter(parameter(static_cast<std::uint64_t>(i)), at(2 * i + 1));
  }
  // The sums took 15 ms (a window behind), and the timeout is four times that: at first it has
  // passed for some packets only, later for all.
  worker.on_timeout(at(184 + 40));
  EXPECT_LT(drained(worker, at(184 + 40)).size(), 8U);
  worker.on_timeout(at(184 + 200));
  EXPECT_GE(worker.counters().timeouts, 8U);
  for (std::uint64_t s = 92; s < 99; ++s) (void)worker.on_parameter(parameter(s), at(400));
  EXPECT_EQ(sequences(drained(worker, at(400))), (Sequences{99}));
  (void)worker.on_parameter(parameter(99), at(400));
  ASSERT_TRUE(worker.idle());
  // Nothing is in flight, so the other workers may begin later than usual.
  ASSERT_TRUE(worker.start({4, kOneMs * 30'000, 0}, at(1000)).ok());
  (void)drained(worker, at(1000));
  const std::uint64_t before = worker.counters().timeouts;
  worker.on_timeout(at(1049));
  EXPECT_EQ(worker.counters().timeouts, before);
  worker.on_timeout(at(1200));
  EXPECT_EQ(worker.counters().timeouts, before + 1);
}

TEST(AtpWorker, on_timeout__a_deadline_fails_everything_and_names_the_server) {
  AtpWorkerOptions options = two_workers();
  options.servers = 2;
  AtpWorker worker = started(options, 40, kOneMs * 100);
  (void)drained(worker, at(0));
  (void)worker.on_parameter(parameter(0), at(1));
  worker.on_timeout(at(99));
  AtpOutcome outcome;
  EXPECT_FALSE(worker.poll_event(outcome));
  worker.on_timeout(at(100));
  ASSERT_TRUE(worker.poll_event(outcome));
  EXPECT_EQ(outcome.error,
            "job 3: worker 1 of group 0: deadline: no sum of sequence 1 from server 1");
  EXPECT_TRUE(drained(worker, at(100)).empty());
  EXPECT_FALSE(worker.next_timeout());
  EXPECT_EQ(worker.start({4, kOneMs, 0}, at(101)).error().message(), outcome.error);
  EXPECT_EQ(worker.on_parameter(parameter(1), at(101)).verdict, Verdict::kFailed);
}

TEST(AtpWorker, on_abort__names_who_is_missing_at_the_oldest_sequence_only) {
  AtpWorker worker = started(two_workers(), 40);
  (void)drained(worker, at(0));
  wire::AtpHeader abort = parameter(2);
  abort.kind = wire::AtpKind::kAbort;
  abort.elements = 0;
  abort.group_count = 3;
  abort.groups = 0b100;
  abort.workers = 0b01;
  worker.on_abort(abort, at(1));
  EXPECT_FALSE(worker.idle());
  abort.sequence = 0;
  worker.on_abort(abort, at(1));
  AtpOutcome outcome;
  ASSERT_TRUE(worker.poll_event(outcome));
  EXPECT_EQ(
      outcome.error,
      "job 3: worker 1 of group 0: the server waits in vain at sequence 0 for workers: all of "
      "group 2, 0 of group 0");
}

TEST(AtpWorker, start__refuses_what_is_not_allowed) {
  AtpWorkerOptions options = two_workers();
  options.most_tensors = 1;
  AtpWorker worker(options);
  EXPECT_EQ(worker.start({0, kOneMs, 0}, at(0)).error().message(), "elements = 0: must be above 0");
  EXPECT_EQ(worker.start({1, Duration(), 0}, at(0)).error().message(),
            "deadline = 0ps: must be above 0");
  ASSERT_TRUE(worker.start({1, kOneMs, 0}, at(0)).ok());
  EXPECT_EQ(worker.start({1, kOneMs, 0}, at(0)).error().message(),
            "tensors = 2: must be at most 1 in flight");
}

TEST(AtpWorker, levels__a_worker_says_where_it_may_be_aggregated) {
  AtpWorkerOptions options = two_workers();
  options.fan_in = 1;
  options.index = 0;
  options.level = wire::kAtpSecondLevel;
  AtpWorker second = started(options, 4);
  wire::AtpHeader header = drained(second, at(0))[0].header;
  EXPECT_EQ(header.groups, 1U);
  EXPECT_EQ(header.workers, 0U);
  EXPECT_EQ(wire::check_atp_header(header), wire::WireError::kNone);
  options = two_workers();
  options.level = wire::kAtpServerLevel;
  AtpWorker none = started(options, 4);
  header = drained(none, at(0))[0].header;
  EXPECT_TRUE(header.collision);
  EXPECT_EQ(wire::check_atp_header(header), wire::WireError::kNone);
}

TEST(AtpWorker, poll_transmit__what_is_lost_goes_first_and_within_the_window) {
  AtpWorkerOptions options = two_workers();
  options.congestion.enabled = true;
  options.congestion.initial_packets = 8;
  options.recovery.initial = kOneMs * 4;
  AtpWorker worker = started(options, 100);
  ASSERT_EQ(drained(worker, at(0)).size(), 8U);
  // Packets that timed out are sent again one at first, then two for each answer.
  worker.on_timeout(at(4));
  EXPECT_EQ(sequences(drained(worker, at(4))), (Sequences{0}));
  (void)worker.on_parameter(parameter(0), at(5));
  EXPECT_EQ(sequences(drained(worker, at(5))), (Sequences{1, 2}));
  // The first loss halved the window; the loss of a retransmission leaves one packet.
  EXPECT_EQ(worker.congestion().packets(), 4U);
  worker.on_timeout(at(30));
  EXPECT_EQ(worker.congestion().packets(), 1U);
  EXPECT_EQ(sequences(drained(worker, at(30))), (Sequences{1}));
  (void)worker.on_parameter(parameter(1), at(31));
  const auto next = drained(worker, at(31));
  ASSERT_FALSE(next.empty());
  EXPECT_EQ(next[0].header.sequence, 2U);
  EXPECT_TRUE(next[0].header.resend);
}

// Losses of one window are found together, not one by one.
TEST(AtpWorker, on_parameter__all_holes_below_a_later_sum_are_lost) {
  AtpWorkerOptions options = two_workers();
  for (const bool all : {true, false}) {
    options.recovery.all_holes = all;
    AtpWorker worker = started(options, 32);
    ASSERT_EQ(drained(worker, at(0)).size(), 8U);
    for (const std::uint64_t came : {1U, 3U, 5U, 6U})
      (void)worker.on_parameter(parameter(came), at(1));
    EXPECT_EQ(sequences(drained(worker, at(1))), all ? (Sequences{0, 2}) : (Sequences{0}));
  }
}

// The sums of each server arrive in order; those of different servers do not.
TEST(AtpWorker, on_parameter__holes_are_looked_for_among_the_sums_of_one_server) {
  AtpWorkerOptions options = two_workers();
  options.servers = 2;
  options.window = 32;
  AtpWorker worker = started(options, 4 * 40);
  ASSERT_EQ(drained(worker, at(0)).size(), 32U);
  // Server 1 is far ahead: nothing of server 0 is lost.
  for (std::uint64_t s = 1; s < 32; s += 2) (void)worker.on_parameter(parameter(s), at(1));
  EXPECT_TRUE(drained(worker, at(1)).empty());
  (void)worker.on_parameter(parameter(4), at(2));
  EXPECT_TRUE(drained(worker, at(2)).empty());
  (void)worker.on_parameter(parameter(6), at(2));
  EXPECT_EQ(sequences(drained(worker, at(2))), (Sequences{0}));
  (void)worker.on_parameter(parameter(8), at(2));
  EXPECT_EQ(sequences(drained(worker, at(2))), (Sequences{2}));
}

TEST(AtpWorker, on_parameter__at_the_end_the_last_sum_shows_what_is_lost) {
  AtpWorkerOptions options = two_workers();
  for (const bool tail : {true, false}) {
    options.recovery.tail_holes = tail;
    AtpWorker worker = started(options, 4 * 6);
    ASSERT_EQ(drained(worker, at(0)).size(), 6U);
    for (const std::uint64_t came : {0U, 1U, 2U, 3U})
      (void)worker.on_parameter(parameter(came), at(1));
    (void)worker.on_parameter(parameter(5), at(1));
    EXPECT_EQ(sequences(drained(worker, at(1))), tail ? Sequences{4} : Sequences{});
  }
}

// A loss does not stop new packets, and a lost retransmission is found without a timeout.
TEST(AtpWorker, on_parameter__what_is_lost_again_shows_by_what_was_sent_after_it) {
  AtpWorkerOptions options = two_workers();
  options.window = 64;
  options.congestion.enabled = true;
  options.congestion.initial_packets = 8;
  options.congestion.threshold = Bytes(1);
  AtpWorker worker = started(options, 4 * 60);
  std::vector<std::uint64_t> again;
  std::uint64_t newest = 0;
  // The network answers all but sequence 0, a round trip later.
  std::vector<AtpTransmit> flight = drained(worker, at(0));
  EXPECT_EQ(flight.size(), 8U);
  for (std::int64_t ms = 1; ms < 10; ++ms) {
    for (const AtpTransmit& each : flight) {
      if (each.header.sequence > 0) {
        (void)worker.on_parameter(parameter(each.header.sequence), at(ms));
      }
    }
    flight = drained(worker, at(ms));
    for (const AtpTransmit& each : flight) {
      newest = std::max(newest, each.header.sequence);
      if (each.header.resend) again.push_back(each.header.sequence);
    }
  }
  EXPECT_GE(newest, 40U);
  EXPECT_GE(again.size(), 3U);
  EXPECT_EQ(again, Sequences(again.size(), 0));
  EXPECT_EQ(worker.counters().timeouts, 0U);
  EXPECT_EQ(worker.oldest(), 0U);
}

TEST(AtpWorkerOptions, validate__names_field_value_and_range) {
  const auto error_of = [](const std::function<void(AtpWorkerOptions&)>& change) {
    AtpWorkerOptions options = two_workers();
    change(options);
    const Status status = options.validate();
    return status.ok() ? std::string() : status.error().message();
  };
  EXPECT_EQ(error_of([](auto&) {}), "");
  EXPECT_EQ(error_of([](auto& o) { o.window = 24; }),
            "window = 24: must be a power of two up to 1048576");
  EXPECT_EQ(error_of([](auto& o) { o.fan_in = 33; }), "fan_in = 33: must be from 1 to 32");
  EXPECT_EQ(error_of([](auto& o) { o.index = 2; }), "index = 2: must be below fan_in");
  EXPECT_EQ(error_of([](auto& o) { o.level = 1; }),
            "level = 1: must be 0 or 2 where fan_in is above 1");
  EXPECT_EQ(error_of([](auto& o) { o.elements = 4096; }),
            "elements = 4096: must be from 1 to 2048");
  EXPECT_EQ(error_of([](auto& o) { o.recovery.factor = 0; }),
            "recovery.factor = 0: must be from 1 to 1000");
}

}  // namespace
}  // namespace thalweg::proto
