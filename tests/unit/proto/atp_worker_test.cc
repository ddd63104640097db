#include "proto/atp/worker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

namespace thalweg {
namespace {

using Verdict = AtpPlacement::Verdict;

constexpr Duration kMs = Duration::milliseconds(1);
Time at(std::int64_t ms) { return Time() + kMs * ms; }

// Worker 1 of 2, with a window of 8 packets of 4 elements and no congestion control.
AtpWorkerOptions options_of() {
  AtpWorkerOptions options;
  options.job = 3;
  options.index = 1;
  options.fan_in = 2;
  options.elements = 4;
  options.window = 8;
  options.congestion.enabled = false;
  return options;
}

AtpWorker started(const AtpWorkerOptions& options, std::int64_t elements,
                  Duration deadline = kMs * 30'000) {
  AtpWorker worker(options);
  EXPECT_TRUE(worker.start({elements, deadline, 77}, at(0)).ok());
  return worker;
}

AtpHeader parameter(std::uint64_t sequence, std::uint16_t elements = 4) {
  AtpHeader header;
  header.kind = AtpKind::kParameter;
  header.job = 3;
  header.sequence = sequence;
  header.fan_in = 2;
  header.groups = 1;
  header.elements = elements;
  return header;
}

std::vector<AtpTransmit> drain(AtpWorker& worker, Time now) {
  std::vector<AtpTransmit> all;
  AtpTransmit transmit;
  while (worker.poll_transmit(now, transmit)) all.push_back(transmit);
  return all;
}

std::vector<std::uint64_t> sequences(const std::vector<AtpTransmit>& transmits) {
  std::vector<std::uint64_t> all;
  for (const AtpTransmit& transmit : transmits) all.push_back(transmit.header.sequence);
  return all;
}
using Sequences = std::vector<std::uint64_t>;

TEST(AtpWorker, poll_transmit__a_window_of_blocks_and_no_more) {
  AtpWorkerOptions options = options_of();
  options.servers = 3;
  AtpWorker worker = started(options, 38);
  const auto sent = drain(worker, at(0));
  ASSERT_EQ(sequences(sent), (Sequences{0, 1, 2, 3, 4, 5, 6, 7}));
  AtpHeader expected = parameter(5);
  expected.kind = AtpKind::kGradient;
  expected.workers = 0b10;
  expected.groups = 0;
  EXPECT_EQ(sent[5].header, expected);
  EXPECT_EQ(check_atp_header(sent[5].header), WireError::kNone);
  EXPECT_EQ(sent[5].server, 2U);
  EXPECT_EQ(sent[5].block.first_element, 20);
  EXPECT_EQ(sent[5].block.cookie, 77U);
  EXPECT_EQ(worker.on_parameter(parameter(0), at(1)).verdict, Verdict::kPlace);
  EXPECT_EQ(worker.on_parameter(parameter(2), at(1)).verdict, Verdict::kPlace);
  EXPECT_EQ(sequences(drain(worker, at(1))), (Sequences{8}));
  EXPECT_EQ(worker.on_parameter(parameter(1), at(1)).verdict, Verdict::kPlace);
  const auto last = drain(worker, at(1));
  ASSERT_EQ(sequences(last), (Sequences{9}));
  EXPECT_EQ(last[0].block.elements, 2);
  EXPECT_EQ(worker.oldest(), 3U);
}

TEST(AtpWorker, on_parameter__places_each_block_once_and_ends_the_tensors) {
  AtpWorker worker = started(options_of(), 6);
  ASSERT_TRUE(worker.start({4, kMs * 30'000, 78}, at(0)).ok());
  (void)drain(worker, at(0));
  EXPECT_EQ(worker.on_parameter(parameter(0), at(1)).block.first_element, 0);
  EXPECT_EQ(worker.on_parameter(parameter(0), at(1)).verdict, Verdict::kOutOfWindow);
  EXPECT_EQ(worker.on_parameter(parameter(1), at(1)).verdict, Verdict::kMismatch);  // has 2
  const AtpPlacement second = worker.on_parameter(parameter(2), at(2));
  EXPECT_EQ(second.verdict, Verdict::kPlace);
  EXPECT_EQ(second.block.first_element, 0);
  EXPECT_EQ(second.block.cookie, 78U);
  EXPECT_EQ(worker.on_parameter(parameter(2), at(2)).verdict, Verdict::kDuplicate);
  EXPECT_EQ(worker.on_parameter(parameter(3), at(2)).verdict, Verdict::kOutOfWindow);
  AtpHeader other = parameter(1, 2);
  other.job = 4;
  EXPECT_EQ(worker.on_parameter(other, at(2)).verdict, Verdict::kMismatch);
  AtpOutcome outcome;
  ASSERT_TRUE(worker.poll_event(outcome));
  EXPECT_EQ(outcome.cookie, 78U);
  AtpHeader last = parameter(1, 2);
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
  AtpWorker worker = started(options_of(), 32);
  (void)drain(worker, at(0));
  (void)worker.on_parameter(parameter(1), at(1));
  (void)worker.on_parameter(parameter(2), at(1));
  EXPECT_TRUE(drain(worker, at(1)).empty());
  (void)worker.on_parameter(parameter(3), at(1));
  const auto again = drain(worker, at(1));
  ASSERT_EQ(sequences(again), (Sequences{0}));
  EXPECT_TRUE(again[0].header.resend);
  for (std::uint64_t s = 4; s < 8; ++s) (void)worker.on_parameter(parameter(s), at(1));
  EXPECT_TRUE(drain(worker, at(1)).empty());
  (void)worker.on_parameter(parameter(0), at(1));
  EXPECT_EQ(worker.oldest(), 8U);
  EXPECT_EQ(worker.counters().out_of_sequence, 1U);
}

TEST(AtpWorker, on_timeout__sends_again_ever_more_rarely) {
  AtpWorkerOptions options = options_of();
  options.recovery.initial = kMs * 4;
  options.recovery.most = kMs * 20;
  AtpWorker worker = started(options, 4);
  (void)drain(worker, at(0));
  std::vector<std::int64_t> times;
  for (std::int64_t ms = 1; ms <= 80; ++ms) {
    worker.on_timeout(at(ms));
    for (const AtpTransmit& transmit : drain(worker, at(ms))) {
      EXPECT_TRUE(transmit.header.resend);
      times.push_back(ms);
    }
  }
  EXPECT_EQ(times, (std::vector<std::int64_t>{4, 12, 28, 48, 68}));
  EXPECT_EQ(worker.counters().timeouts, 5U);
}

TEST(AtpWorker, on_timeout__follows_what_is_typical_but_not_after_a_pause) {
  AtpWorkerOptions options = options_of();
  options.recovery.initial = kMs * 50;
  AtpWorker worker = started(options, 4 * 100);
  for (std::int64_t i = 0; i < 92; ++i) {
    (void)drain(worker, at(2 * i));
    (void)worker.on_parameter(parameter(static_cast<std::uint64_t>(i)), at(2 * i + 1));
  }
  // What came took 15 ms (a window behind); four times that has passed for what was sent last.
  worker.on_timeout(at(184 + 40));
  EXPECT_LT(drain(worker, at(184 + 40)).size(), 8U);
  worker.on_timeout(at(184 + 200));
  EXPECT_GE(worker.counters().timeouts, 8U);
  for (std::uint64_t s = 92; s < 99; ++s) (void)worker.on_parameter(parameter(s), at(400));
  EXPECT_EQ(sequences(drain(worker, at(400))), (Sequences{99}));
  (void)worker.on_parameter(parameter(99), at(400));
  ASSERT_TRUE(worker.idle());
  // Nothing is in flight: the others may begin later than typical.
  ASSERT_TRUE(worker.start({4, kMs * 30'000, 0}, at(1000)).ok());
  (void)drain(worker, at(1000));
  const std::uint64_t before = worker.counters().timeouts;
  worker.on_timeout(at(1049));
  EXPECT_EQ(worker.counters().timeouts, before);
  worker.on_timeout(at(1200));
  EXPECT_EQ(worker.counters().timeouts, before + 1);
}

TEST(AtpWorker, on_timeout__a_deadline_fails_everything_and_names_the_server) {
  AtpWorkerOptions options = options_of();
  options.servers = 2;
  AtpWorker worker = started(options, 40, kMs * 100);
  (void)drain(worker, at(0));
  (void)worker.on_parameter(parameter(0), at(1));
  worker.on_timeout(at(99));
  AtpOutcome outcome;
  EXPECT_FALSE(worker.poll_event(outcome));
  worker.on_timeout(at(100));
  ASSERT_TRUE(worker.poll_event(outcome));
  EXPECT_EQ(outcome.error,
            "job 3: worker 1 of group 0: deadline: no sum of sequence 1 from server 1");
  EXPECT_TRUE(drain(worker, at(100)).empty());
  EXPECT_FALSE(worker.next_timeout());
  EXPECT_EQ(worker.start({4, kMs, 0}, at(101)).error().message(), outcome.error);
  EXPECT_EQ(worker.on_parameter(parameter(1), at(101)).verdict, Verdict::kFailed);
}

TEST(AtpWorker, on_abort__names_who_is_missing_at_the_oldest_sequence_only) {
  AtpWorker worker = started(options_of(), 40);
  (void)drain(worker, at(0));
  AtpHeader abort = parameter(2);
  abort.kind = AtpKind::kAbort;
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
  AtpWorkerOptions options = options_of();
  options.most_tensors = 1;
  AtpWorker worker(options);
  EXPECT_EQ(worker.start({0, kMs, 0}, at(0)).error().message(), "elements = 0: must be above 0");
  EXPECT_EQ(worker.start({1, Duration(), 0}, at(0)).error().message(),
            "deadline = 0ps: must be above 0");
  ASSERT_TRUE(worker.start({1, kMs, 0}, at(0)).ok());
  EXPECT_EQ(worker.start({1, kMs, 0}, at(0)).error().message(),
            "tensors = 2: must be at most 1 in flight");
}

TEST(AtpWorker, levels__a_worker_says_where_it_may_be_aggregated) {
  AtpWorkerOptions options = options_of();
  options.fan_in = 1;
  options.index = 0;
  options.level = kAtpSecondLevel;
  AtpWorker second = started(options, 4);
  AtpHeader header = drain(second, at(0))[0].header;
  EXPECT_EQ(header.groups, 1U);
  EXPECT_EQ(header.workers, 0U);
  EXPECT_EQ(check_atp_header(header), WireError::kNone);
  options = options_of();
  options.level = kAtpServerLevel;
  AtpWorker none = started(options, 4);
  header = drain(none, at(0))[0].header;
  EXPECT_TRUE(header.collision);
  EXPECT_EQ(check_atp_header(header), WireError::kNone);
}

TEST(AtpWorker, poll_transmit__what_is_lost_goes_first_and_within_the_window) {
  AtpWorkerOptions options = options_of();
  options.congestion.enabled = true;
  options.congestion.initial_packets = 8;
  options.recovery.initial = kMs * 4;
  AtpWorker worker = started(options, 100);
  ASSERT_EQ(drain(worker, at(0)).size(), 8U);
  // What timed out goes again one at first, then two for each answer.
  worker.on_timeout(at(4));
  EXPECT_EQ(sequences(drain(worker, at(4))), (Sequences{0}));
  (void)worker.on_parameter(parameter(0), at(5));
  EXPECT_EQ(sequences(drain(worker, at(5))), (Sequences{1, 2, 8}));
  // The first loss halved the window; that of a retransmission leaves one packet.
  EXPECT_EQ(worker.congestion().packets(), 4U);
  worker.on_timeout(at(30));
  EXPECT_EQ(worker.congestion().packets(), 1U);
  EXPECT_EQ(sequences(drain(worker, at(30))), (Sequences{1}));
  (void)worker.on_parameter(parameter(1), at(31));
  const auto next = drain(worker, at(31));
  ASSERT_FALSE(next.empty());
  EXPECT_EQ(next[0].header.sequence, 2U);
  EXPECT_TRUE(next[0].header.resend);
}

// Losses of one window are found together, not one by one.
TEST(AtpWorker, on_parameter__all_holes_below_a_later_sum_are_lost) {
  AtpWorkerOptions options = options_of();
  for (const bool all : {true, false}) {
    options.recovery.all_holes = all;
    AtpWorker worker = started(options, 32);
    ASSERT_EQ(drain(worker, at(0)).size(), 8U);
    for (const std::uint64_t came : {1U, 3U, 5U, 6U})
      (void)worker.on_parameter(parameter(came), at(1));
    EXPECT_EQ(sequences(drain(worker, at(1))), all ? (Sequences{0, 2}) : (Sequences{0}));
  }
}

// The sums of each server come in order, whatever those of the others do.
TEST(AtpWorker, on_parameter__holes_are_looked_for_among_the_sums_of_one_server) {
  AtpWorkerOptions options = options_of();
  options.servers = 2;
  options.window = 32;
  AtpWorker worker = started(options, 4 * 40);
  ASSERT_EQ(drain(worker, at(0)).size(), 32U);
  // Server 1 is far ahead: nothing of server 0 is lost.
  for (std::uint64_t s = 1; s < 32; s += 2) (void)worker.on_parameter(parameter(s), at(1));
  EXPECT_TRUE(drain(worker, at(1)).empty());
  (void)worker.on_parameter(parameter(4), at(2));
  EXPECT_TRUE(drain(worker, at(2)).empty());
  (void)worker.on_parameter(parameter(6), at(2));
  EXPECT_EQ(sequences(drain(worker, at(2))), (Sequences{0}));
  (void)worker.on_parameter(parameter(8), at(2));
  EXPECT_EQ(sequences(drain(worker, at(2))), (Sequences{2}));
}

TEST(AtpWorker, on_parameter__at_the_end_the_last_sum_shows_what_is_lost) {
  AtpWorkerOptions options = options_of();
  for (const bool tail : {true, false}) {
    options.recovery.tail_holes = tail;
    AtpWorker worker = started(options, 4 * 6);
    ASSERT_EQ(drain(worker, at(0)).size(), 6U);
    for (const std::uint64_t came : {0U, 1U, 2U, 3U})
      (void)worker.on_parameter(parameter(came), at(1));
    (void)worker.on_parameter(parameter(5), at(1));
    EXPECT_EQ(sequences(drain(worker, at(1))), tail ? Sequences{4} : Sequences{});
  }
}

// A loss does not stop what is new, and what is lost again is found without a timeout.
TEST(AtpWorker, on_parameter__what_is_lost_again_shows_by_what_was_sent_after_it) {
  AtpWorkerOptions options = options_of();
  options.window = 64;
  options.congestion.enabled = true;
  options.congestion.initial_packets = 8;
  options.congestion.threshold = Bytes(1);
  AtpWorker worker = started(options, 4 * 60);
  std::vector<std::uint64_t> again;
  std::uint64_t newest = 0;
  // The network answers all but sequence 0, a round trip later.
  std::vector<AtpTransmit> flight = drain(worker, at(0));
  EXPECT_EQ(flight.size(), 8U);
  for (std::int64_t ms = 1; ms < 10; ++ms) {
    for (const AtpTransmit& each : flight) {
      if (each.header.sequence > 0) {
        (void)worker.on_parameter(parameter(each.header.sequence), at(ms));
      }
    }
    flight = drain(worker, at(ms));
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

// Those lost by timeout that have to wait hold up neither other losses nor what is new.
TEST(AtpWorker, poll_transmit__what_has_to_wait_holds_up_nothing_else) {
  AtpWorkerOptions options = options_of();
  options.window = 16;
  options.congestion.enabled = true;
  options.congestion.initial_packets = 8;
  options.recovery.initial = kMs * 4;
  AtpWorker worker = started(options, 4 * 100);
  ASSERT_EQ(drain(worker, at(0)).size(), 8U);
  // All time out. 0 goes again, 1 to 7 have to wait, and half a window is on its way.
  worker.on_timeout(at(4));
  EXPECT_EQ(sequences(drain(worker, at(4))), (Sequences{0, 8, 9, 10}));
  EXPECT_FALSE(worker.ready());
  // Later sums show that 0 is lost again, then that 8 is: they go before what is new.
  for (const std::uint64_t s : {9U, 10U}) (void)worker.on_parameter(parameter(s), at(5));
  EXPECT_EQ(sequences(drain(worker, at(5))), (Sequences{0, 11, 12}));
  (void)worker.on_parameter(parameter(11), at(6));
  EXPECT_EQ(sequences(drain(worker, at(6))), (Sequences{8, 13}));
  EXPECT_EQ(worker.oldest(), 0U);
  // What was sent again is answered: those that wait go first.
  (void)worker.on_parameter(parameter(0), at(7));
  (void)worker.on_parameter(parameter(12), at(7));
  EXPECT_EQ(sequences(drain(worker, at(7))), (Sequences{1, 2}));
}

TEST(AtpWorkerOptions, validate__names_field_value_and_range) {
  const auto error_of = [](const std::function<void(AtpWorkerOptions&)>& change) {
    AtpWorkerOptions options = options_of();
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
}  // namespace thalweg
