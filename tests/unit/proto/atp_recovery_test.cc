// How a worker finds out that a packet was lost, and what it sends then.
#include "proto/atp/worker.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>

#include "proto/atp_by_hand.h"

namespace thalweg::proto {
namespace {

using namespace atp_by_hand;

wire::AtpHeader missing(std::uint64_t sequence) {
  wire::AtpHeader header;
  header.kind = wire::AtpKind::kMissing;
  header.job = 3;
  header.sequence = sequence;
  header.fan_in = 2;
  header.workers = 0b10;
  return header;
}

// A worker with a window of 16 that has learned that sums take 2 ms: all its packets up to 31 have
// been answered, and 32 to 47 are in flight since 100 ms.
AtpWorker settled(AtpWorkerOptions options, std::int64_t blocks) {
  options.window = 16;
  AtpWorker worker = started(options, 4 * blocks);
  for (const std::int64_t ms : {0, 98}) {
    for (const AtpTransmit& each : drained(worker, at(ms))) {
      EXPECT_EQ(worker.on_parameter(parameter(each.header.sequence), at(ms + 2)).verdict,
                Verdict::kPlace);
    }
  }
  EXPECT_EQ(drained(worker, at(100)).size(), 16U);
  return worker;
}

TEST(AtpRecovery, on_missing__sends_the_packet_as_if_for_the_first_time) {
  AtpWorker worker = settled(two_workers(), 100);
  worker.on_missing(missing(34));
  const auto again = drained(worker, at(101));
  ASSERT_EQ(sequences(again), (Sequences{34}));
  EXPECT_FALSE(again[0].header.resend);
  EXPECT_TRUE(again[0].again);
  // A second report, and reports of what was placed or never sent, change nothing.
  (void)worker.on_parameter(parameter(35), at(102));
  for (const std::uint64_t s : {34U, 35U, 31U, 48U}) worker.on_missing(missing(s));
  wire::AtpHeader other = missing(36);
  other.job = 4;
  worker.on_missing(other);
  EXPECT_TRUE(drained(worker, at(102)).empty());
  EXPECT_EQ(worker.counters().missing, 1U);
  EXPECT_EQ(worker.counters().duplicate, 2U);
  EXPECT_EQ(worker.counters().out_of_window, 2U);
  EXPECT_EQ(worker.counters().mismatch, 1U);
  // If that is lost, too, a timeout sends it so that a switch flushes the sum.
  for (std::uint64_t s = 32; s < 48; ++s) {
    if (s != 34 && s != 35) (void)worker.on_parameter(parameter(s), at(102));
  }
  (void)drained(worker, at(102));
  worker.on_timeout(at(120));
  const auto flushed = drained(worker, at(120));
  ASSERT_FALSE(flushed.empty());
  EXPECT_EQ(flushed[0].header.sequence, 34U);
  EXPECT_TRUE(flushed[0].header.resend);
}

TEST(AtpRecovery, on_parameter__what_is_overtaken_gets_time_to_be_made_good) {
  AtpWorkerOptions options = two_workers();
  AtpWorker worker = settled(options, 100);
  for (std::uint64_t s = 33; s < 40; ++s) (void)worker.on_parameter(parameter(s), at(102));
  // Twice the typical time has not passed: a switch may have asked the worker that lost it.
  for (const AtpTransmit& each : drained(worker, at(102))) EXPECT_FALSE(each.again);
  ASSERT_TRUE(worker.next_timeout());
  EXPECT_LE(*worker.next_timeout(), at(104));
  worker.on_timeout(at(104));
  const auto again = drained(worker, at(104));
  ASSERT_EQ(sequences(again), (Sequences{32}));
  EXPECT_TRUE(again[0].header.resend);
  EXPECT_EQ(worker.counters().timeouts, 0U);
  options.recovery.patience = 0;
  AtpWorker hasty = settled(options, 100);
  for (std::uint64_t s = 33; s < 36; ++s) (void)hasty.on_parameter(parameter(s), at(102));
  EXPECT_EQ(drained(hasty, at(102)).front().header.sequence, 32U);
}

// Sends `flights` windows of packets, whose sums come after 2 ms by path 0 and after 10 ms by path
// 1. `paths`: how many the worker knows of.
AtpWorkerCounters over_unequal_paths(std::uint32_t paths, std::int64_t flights) {
  AtpWorkerOptions options = two_workers();
  options.window = 64;
  options.paths = paths;
  AtpWorker worker = started(options, 4 * 64 * flights);
  std::multimap<std::int64_t, std::uint64_t> sums;  // sequences by the time of their sums
  AtpOutcome outcome;
  for (std::int64_t ms = 0; !worker.poll_event(outcome) && ms < 100 * flights; ++ms) {
    for (auto sum = sums.begin(); sum != sums.end() && sum->first <= ms; sum = sums.erase(sum)) {
      (void)worker.on_parameter(parameter(sum->second), at(ms));
    }
    worker.on_timeout(at(ms));
    for (const AtpTransmit& each : drained(worker, at(ms))) {
      const std::uint64_t sequence = each.header.sequence;
      sums.emplace(ms + (wire::atp_path_of(sequence, 2) == 0 ? 2 : 10), sequence);
    }
  }
  EXPECT_TRUE(outcome.ok() && worker.idle());
  return worker.counters();
}

// A path that takes five times as long as another loses nothing.
TEST(AtpRecovery, paths__sums_of_a_slow_path_are_not_taken_for_lost) {
  const AtpWorkerCounters judged_by_path = over_unequal_paths(2, 20);
  EXPECT_LE(judged_by_path.retransmitted * 100, judged_by_path.sent);
  EXPECT_GT(over_unequal_paths(1, 20).retransmitted, 100U);
}

TEST(AtpRecovery, paths__a_loss_on_the_fast_path_does_not_wait_for_the_slow_one) {
  AtpWorkerOptions options = two_workers();
  options.window = 64;
  options.paths = 2;
  AtpWorker worker = started(options, 4 * 64 * 10);
  const auto slow = [](std::uint64_t s) { return wire::atp_path_of(s, 2) == 1; };
  for (const std::int64_t ms : {0, 100, 200, 300}) {
    const auto sent = drained(worker, at(ms));
    ASSERT_EQ(sent.size(), 64U);
    for (const std::int64_t late : {2, 10}) {
      for (const AtpTransmit& each : sent) {
        if (slow(each.header.sequence) != (late == 10)) continue;
        (void)worker.on_parameter(parameter(each.header.sequence), at(ms + late));
      }
    }
  }
  const auto sent = drained(worker, at(400));
  const std::uint64_t lost = sent.front().header.sequence;
  ASSERT_FALSE(slow(lost));
  for (const AtpTransmit& each : sent) {
    const std::uint64_t s = each.header.sequence;
    if (s != lost && !slow(s)) (void)worker.on_parameter(parameter(s), at(402));
  }
  worker.on_timeout(at(405));
  const auto again = drained(worker, at(405));
  ASSERT_FALSE(again.empty());
  EXPECT_EQ(again.front().header.sequence, lost);
  EXPECT_EQ(worker.counters().retransmitted, 1U);
}

// Other workers may be late. Until they come, the sums that wait for them in a switch must stay
// there, and this worker must not run ahead of them.
TEST(AtpRecovery, on_timeout__waiting_for_another_worker_is_no_loss) {
  AtpWorkerOptions options = two_workers();
  options.congestion.enabled = true;
  options.congestion.initial_packets = 16;
  AtpWorker worker = settled(options, 100);
  worker.on_timeout(at(108));
  EXPECT_EQ(worker.counters().timeouts, 16U);
  const auto first = drained(worker, at(108));
  ASSERT_EQ(sequences(first), (Sequences{32}));
  EXPECT_TRUE(first[0].again);
  EXPECT_FALSE(first[0].header.resend);
  worker.on_timeout(at(116));
  const auto second = drained(worker, at(116));
  ASSERT_EQ(sequences(second), (Sequences{32}));
  EXPECT_TRUE(second[0].header.resend);
  // Nothing has come since the retransmission: the path may be congested.
  worker.on_timeout(at(132));
  EXPECT_EQ(worker.congestion().packets(), 1U);
}

// The last packets have no later ones that could show their loss.
TEST(AtpRecovery, on_timeout__at_the_end_after_twice_the_typical_time) {
  AtpWorkerOptions options = two_workers();
  options.servers = 4;
  AtpWorker worker = settled(options, 48);
  for (std::uint64_t s = 32; s < 48; ++s) {
    if (s != 40 && s != 47) (void)worker.on_parameter(parameter(s), at(102));
  }
  worker.on_timeout(at(104));
  const auto again = drained(worker, at(104));
  ASSERT_EQ(sequences(again), (Sequences{40, 47}));
  EXPECT_TRUE(again[0].header.resend);
  EXPECT_TRUE(again[1].header.resend);
  // A retransmission that is lost is found as fast.
  worker.on_timeout(at(108));
  EXPECT_GE(drained(worker, at(108)).size(), 1U);
}

// The other worker begins after three seconds.
TEST(AtpRecovery, patient_start__a_late_worker_leaves_the_window_as_it_is) {
  for (const bool patient : {false, true}) {
    AtpWorkerOptions options = two_workers();
    options.window = 64;
    options.congestion.enabled = true;
    options.recovery.patient_start = patient;
    AtpWorker worker = started(options, 64 * 4);
    ASSERT_EQ(drained(worker, at(0)).size(), 50U);
    for (int ms = 10; ms < 3000; ms += 10) {
      worker.on_timeout(at(ms));
      (void)drained(worker, at(ms));
    }
    EXPECT_GT(worker.counters().timeouts, 2U);
    EXPECT_EQ(worker.congestion().packets(), patient ? 50U : 1U);
  }
}

}  // namespace
}  // namespace thalweg::proto
