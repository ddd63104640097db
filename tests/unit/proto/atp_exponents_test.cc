#include "proto/atp/exponents.h"

#include <gtest/gtest.h>

#include <optional>

#include "proto/atp/server.h"
#include "proto/atp_by_hand.h"

namespace thalweg::proto {
namespace {

using namespace atp_by_hand;
using tensor::kNoExponent;
using tensor::kNotFinite;

constexpr AtpScaling kKind{.kind = 7, .headroom = 2, .slack = 4};

TEST(AtpExponents, fit_of__too_small_too_coarse_and_exact) {
  struct Row {
    int exponent;
    int needed;
    AtpFit fit;
  };
  for (const Row& row :
       {Row{3, 3, AtpFit::kFits}, Row{3, 4, AtpFit::kRepeat}, Row{3, -1, AtpFit::kFits},
        Row{3, -2, AtpFit::kRepeat}, Row{3, kNoExponent, AtpFit::kFits},
        Row{3, kNotFinite, AtpFit::kNotFinite}, Row{kNotFinite, kNotFinite, AtpFit::kNotFinite},
        Row{126, -90, AtpFit::kRepeat}, Row{-90, 126, AtpFit::kRepeat}}) {
    EXPECT_EQ(fit_of(static_cast<std::int8_t>(row.exponent), static_cast<std::int8_t>(row.needed),
                     kKind.slack),
              row.fit)
        << row.exponent << " where " << row.needed << " is needed";
  }
}

TEST(AtpExponents, atp_scaling__kinds_differ_by_size_type_and_operation) {
  const AtpScaling one = atp_scaling(DType::kFloat32, 100, 0);
  EXPECT_NE(one.kind, 0U);
  EXPECT_EQ(one.kind, atp_scaling(DType::kFloat32, 100, 0).kind);
  EXPECT_NE(one.kind, atp_scaling(DType::kFloat32, 101, 0).kind);
  EXPECT_NE(one.kind, atp_scaling(DType::kFloat16, 100, 0).kind);
  EXPECT_NE(one.kind, atp_scaling(DType::kFloat32, 100, 1).kind);
  EXPECT_LE(one.headroom, one.slack);
}

TEST(AtpExponents, predict__from_the_last_call_of_the_kind_with_headroom) {
  AtpExponents exponents({.lag_sequences = 1});
  const auto first = exponents.start(kKind, 0, 4);
  for (std::uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(exponents.predict(first, i), AtpExponents::kFirstGuess);
  }
  const auto second = exponents.start(kKind, 4, 4);
  EXPECT_EQ(exponents.predict(second, 0), std::nullopt);  // the sum is not there yet
  exponents.learn(first, 0, -9);
  exponents.learn(first, 1, kNoExponent);
  exponents.learn(first, 2, kNotFinite);
  exponents.learn(first, 3, 126);
  EXPECT_EQ(exponents.predict(second, 0), -7);
  EXPECT_EQ(exponents.predict(second, 1), AtpExponents::kFirstGuess);
  EXPECT_EQ(exponents.predict(second, 2), AtpExponents::kFirstGuess);
  EXPECT_EQ(exponents.predict(second, 3), 126);
  // Zeros and infinities tell nothing: what was known before stays.
  for (std::uint64_t i = 0; i < 4; ++i) exponents.learn(second, i, i == 0 ? kNoExponent : 5);
  const auto third = exponents.start(kKind, 8, 4);
  EXPECT_EQ(exponents.predict(third, 0), -7);
  EXPECT_EQ(exponents.predict(third, 1), 7);
  AtpScaling other = kKind;
  other.kind = 8;
  EXPECT_EQ(exponents.predict(exponents.start(other, 12, 4), 0), AtpExponents::kFirstGuess);
}

// Whatever the order in which sums arrive, a call learns from the same one.
TEST(AtpExponents, predict__depends_on_the_order_of_calls_only) {
  constexpr std::uint64_t kCalls = 100;
  const AtpPredictionOptions options{.lag_sequences = 6, .lag_calls = 4};
  for (const std::uint64_t blocks : {1U, 2U, 7U}) {
    std::vector<std::vector<std::int8_t>> predicted;
    // How many calls are in flight before sums arrive.
    for (const std::size_t in_flight : {1U, 2U, 5U}) {
      AtpExponents exponents(options);
      std::vector<AtpExponents::Call> open;
      std::vector<std::int8_t>& all = predicted.emplace_back();
      for (std::uint64_t call = 0; call < kCalls; ++call) {
        open.push_back(exponents.start(kKind, call * blocks, blocks));
        const std::uint64_t last = call + 1 - open.size();
        if (open.size() < in_flight && call + 1 < kCalls) continue;
        for (std::size_t i = 0; i < open.size(); ++i) {
          for (std::uint64_t b = 0; b < blocks; ++b) {
            const auto exponent = exponents.predict(open[i], b);
            ASSERT_TRUE(exponent);
            all.push_back(*exponent);
            exponents.learn(open[i], b, static_cast<std::int8_t>((last + i) % 40));
          }
        }
        open.clear();
      }
    }
    EXPECT_EQ(predicted[0], predicted[1]);
    EXPECT_EQ(predicted[0], predicted[2]);
  }
}

TEST(AtpExponents, start__too_many_kinds_are_forgotten_at_the_same_call) {
  AtpExponents exponents({.most_kinds = 2});
  AtpScaling scaling = kKind;
  const auto learned = exponents.start(scaling, 0, 1);
  exponents.learn(learned, 0, 50);
  EXPECT_EQ(exponents.predict(exponents.start(scaling, 100, 1), 0), 52);  // stays open
  for (std::uint64_t kind = 100; kind < 110; ++kind) {
    scaling.kind = kind;
    const auto call = exponents.start(scaling, kind, 1);
    EXPECT_EQ(exponents.predict(call, 0), AtpExponents::kFirstGuess);
    exponents.learn(call, 0, 1);
  }
  EXPECT_EQ(exponents.predict(exponents.start(kKind, 200, 1), 0), AtpExponents::kFirstGuess);
}

// A sum with these exponents.
wire::AtpHeader sum(std::uint64_t sequence, int exponent, int needed, int next = kNoExponent) {
  wire::AtpHeader header = parameter(sequence);
  header.exponent = static_cast<std::int8_t>(exponent);
  header.needed_exponent = static_cast<std::int8_t>(needed);
  header.next_exponent = static_cast<std::int8_t>(next);
  return header;
}

AtpWorker choosing(const AtpWorkerOptions& options, std::int64_t elements) {
  AtpWorker worker(options);
  EXPECT_TRUE(worker.start({.elements = elements, .scaling = kKind}, at(0)).ok());
  return worker;
}

TEST(AtpWorker, on_parameter__a_sum_that_does_not_fit_is_repeated_and_not_placed) {
  AtpWorker worker = choosing(two_workers(), 8);
  const auto sent = drained(worker, at(0));
  ASSERT_EQ(sequences(sent), (Sequences{0, 1}));
  EXPECT_EQ(sent[0].header.exponent, AtpExponents::kFirstGuess);
  EXPECT_EQ(worker.on_parameter(sum(0, 0, 9), at(1)).verdict, Verdict::kRepeat);
  EXPECT_EQ(worker.oldest(), 0U);
  // Another copy of the same sum changes nothing.
  EXPECT_EQ(worker.on_parameter(sum(0, 0, 9), at(1)).verdict, Verdict::kDuplicate);
  const auto again = drained(worker, at(1));
  ASSERT_EQ(sequences(again), (Sequences{wire::kAtpRepetition}));
  EXPECT_EQ(again[0].header.exponent, 9);
  EXPECT_FALSE(again[0].header.resend);
  EXPECT_FALSE(again[0].again);
  EXPECT_EQ(again[0].server, 0U);
  EXPECT_EQ(again[0].block.first_element, 0);
  EXPECT_EQ(worker.counters().repeated, 1U);
  EXPECT_EQ(worker.counters().retransmitted, 0U);
  // One with another exponent than this worker's cannot be meant.
  EXPECT_EQ(worker.on_parameter(sum(wire::kAtpRepetition, 8, 9), at(2)).verdict,
            Verdict::kMismatch);
  const AtpPlacement placed = worker.on_parameter(sum(wire::kAtpRepetition, 9, 9), at(2));
  EXPECT_EQ(placed.verdict, Verdict::kPlace);
  EXPECT_EQ(placed.exponent, 9);
  EXPECT_EQ(worker.on_parameter(sum(1, 0, kNotFinite), at(2)).exponent, kNotFinite);
  EXPECT_TRUE(worker.idle());
}

TEST(AtpWorker, on_parameter__a_repetition_that_is_lost_is_sent_again) {
  AtpWorker worker = choosing(two_workers(), 4);
  (void)drained(worker, at(0));
  EXPECT_EQ(worker.on_parameter(sum(0, 0, -30), at(1)).verdict, Verdict::kRepeat);
  ASSERT_EQ(drained(worker, at(1)).size(), 1U);
  worker.on_timeout(at(1000));
  const auto again = drained(worker, at(1000));
  ASSERT_EQ(sequences(again), (Sequences{wire::kAtpRepetition}));
  EXPECT_EQ(again[0].header.exponent, -30);
  EXPECT_TRUE(again[0].again);
  EXPECT_EQ(worker.counters().retransmitted, 1U);
}

TEST(AtpWorker, poll_transmit__blocks_after_a_window_have_the_exponent_that_was_told) {
  AtpWorker worker = choosing(two_workers(), 4 * 9);
  const auto sent = drained(worker, at(0));
  ASSERT_EQ(sent.size(), 8U);
  EXPECT_EQ(sent[0].ahead.first_element, 32);
  EXPECT_EQ(sent[0].ahead.elements, 4);
  EXPECT_EQ(sent[1].ahead.elements, 0);
  // The exponents that the headers tell must be possible.
  EXPECT_EQ(worker.on_parameter(sum(0, 0, -100), at(1)).verdict, Verdict::kMismatch);
  EXPECT_EQ(worker.on_parameter(sum(0, 0, 0, -127), at(1)).verdict, Verdict::kMismatch);
  EXPECT_EQ(worker.on_parameter(sum(0, 0, 0, 33), at(1)).verdict, Verdict::kPlace);
  const auto next = drained(worker, at(1));
  ASSERT_EQ(sequences(next), (Sequences{8}));
  EXPECT_EQ(next[0].header.exponent, 33);
}

TEST(AtpWorker, poll_transmit__a_call_waits_for_the_sums_that_it_learns_from) {
  AtpWorker worker = choosing(two_workers(), 4);
  ASSERT_TRUE(worker.start({.elements = 4, .scaling = kKind}, at(0)).ok());
  EXPECT_EQ(sequences(drained(worker, at(0))), (Sequences{0}));
  EXPECT_FALSE(worker.ready());
  EXPECT_EQ(worker.on_parameter(sum(0, 0, -3), at(1)).verdict, Verdict::kPlace);
  const auto next = drained(worker, at(1));
  ASSERT_EQ(sequences(next), (Sequences{1}));
  EXPECT_EQ(next[0].header.exponent, -1);
}

TEST(AtpServer, on_gradient__a_repetition_has_a_slot_of_its_own) {
  AtpServerOptions options;
  options.groups = {2};
  options.window = 1;
  wire::AtpHeader header;
  header.groups = 1;
  header.fan_in = 2;
  header.level = wire::kAtpServerLevel;
  header.elements = 4;
  header.resend = true;
  const auto sequence_of_sum = [](AtpServer& server) -> std::optional<std::uint64_t> {
    AtpServerTransmit transmit;
    if (!server.poll_transmit(transmit)) return std::nullopt;
    return transmit.header.sequence;
  };
  AtpServer without(options);
  header.sequence = wire::kAtpRepetition;
  EXPECT_EQ(without.on_gradient(header, at(0)).cause, AtpServerAction::Cause::kMismatch);

  options.repetitions = true;
  AtpServer server(options);
  EXPECT_EQ(server.slots(), 2 * without.slots());
  for (const std::uint64_t sequence :
       {std::uint64_t{0}, wire::kAtpRepetition, std::uint64_t{1}, wire::kAtpRepetition + 1}) {
    header.sequence = sequence;
    const AtpServerAction action = server.on_gradient(header, at(0));
    EXPECT_TRUE(action.completed);
    EXPECT_LT(action.slot, server.slots());
    EXPECT_EQ(sequence_of_sum(server), sequence);
  }
  // The sum of the first time is still there for those that miss it.
  header.sequence = 0;
  EXPECT_EQ(server.on_gradient(header, at(0)).cause, AtpServerAction::Cause::kAnswered);
  EXPECT_EQ(sequence_of_sum(server), 0U);
}

}  // namespace
}  // namespace thalweg::proto
