// Two ends of the collective protocol by hand: what the schedules of tests/unit/collective found,
// each by name.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/collective/collective.h"

namespace thalweg::proto {
namespace {

// A call that waits for one rank and moves nothing.
class WaitingCall final : public CollectiveCall {
 public:
  explicit WaitingCall(int waits, std::vector<Rank> peers)
      : waits_(waits), peers_(std::move(peers)) {
    text = "barrier";
    signature = 5;
    limit = Duration::milliseconds(20'000);
    set_times(Time());
  }
  [[nodiscard]] const std::vector<Rank>& peers() const override { return peers_; }
  [[nodiscard]] bool takes(Rank, std::uint32_t, std::uint32_t) const override { return true; }
  [[nodiscard]] bool has_data_for(Rank) const override { return false; }
  [[nodiscard]] bool needs(Rank peer) const override { return peer.value() == waits_; }
  [[nodiscard]] std::optional<Rank> waits_for() const override { return Rank(waits_); }
  [[nodiscard]] bool done() const override { return false; }

 private:
  int waits_;
  std::vector<Rank> peers_;
};

Time after_ms(std::int64_t ms) { return Time::at(Duration::milliseconds(ms)); }

// The frames that the rank wants to send to another, of one kind.
template <class Kind>
std::vector<Kind> said(Collective& core, int to) {
  std::vector<Kind> frames;
  Rank peer{0};
  ControlFrame frame;
  while (core.poll_control(peer, frame)) {
    if (peer == Rank(to) && std::holds_alternative<Kind>(frame)) {
      frames.push_back(std::get<Kind>(frame));
    }
  }
  return frames;
}

std::string message_of(const Collective& core) {
  return core.broken() ? core.broken()->message() : "";
}

TEST(CollectiveBlame, answers__about_one_call_do_not_replace_those_about_another) {
  Collective core(Rank(0), 3);
  core.on_connected(Rank(1));
  WaitingCall first(1, {Rank(1)});
  WaitingCall second(1, {Rank(1)});
  core.start(first);
  core.start(second);
  first.ask_at = second.ask_at = after_ms(30'000);
  for (const std::uint32_t number : {1U, 2U}) {
    EXPECT_EQ(core.on_control(Rank(1), 2, AnswerFrame{number, 5, Rank(2), "barrier"}), "");
  }
  core.on_timer(after_ms(19'999));
  EXPECT_FALSE(core.broken());
  core.on_timer(after_ms(20'000));
  EXPECT_EQ(message_of(core), "not over within 20.0 s: rank 1 waits for rank 2");
  EXPECT_EQ(core.broken()->code(), ErrorCode::kTimeout);
  EXPECT_EQ(core.broken()->rank(), 2);
}

// Rank 1 said that it waits, and then stopped: what it said does not clear it.
TEST(CollectiveBlame, answers__of_a_rank_that_no_longer_answers_do_not_hold) {
  Collective core(Rank(0), 3);
  core.on_connected(Rank(1));
  WaitingCall call(1, {Rank(1)});
  core.start(call);
  core.on_timer(after_ms(1'000));
  EXPECT_EQ(core.on_control(Rank(1), 1, AnswerFrame{1, 5, Rank(2), "barrier"}), "");
  for (int second = 2; second < 20; ++second) core.on_timer(after_ms(second * 1'000));
  EXPECT_FALSE(core.broken());
  core.on_timer(after_ms(19'500));
  EXPECT_EQ(message_of(core),
            "not over within 20.0 s: rank 1 is connected and does not answer: it hangs");
  EXPECT_EQ(core.broken()->rank(), 1);
}

TEST(CollectiveBlame, ranks_that_wait_for_each_other__blame_none) {
  Collective core(Rank(0), 2);
  core.on_connected(Rank(1));
  WaitingCall call(1, {Rank(1)});
  core.start(call);
  call.ask_at = after_ms(30'000);
  EXPECT_EQ(core.on_control(Rank(1), 1, AnswerFrame{1, 5, Rank(0), "barrier"}), "");
  core.on_timer(after_ms(20'000));
  EXPECT_EQ(message_of(core), "not over within 20.0 s: rank 0 and rank 1 wait for each other");
  EXPECT_EQ(core.broken()->rank(), std::nullopt);
}

// What DLCP loses together with a rank, the rank's stream explains.
TEST(CollectiveBlame, on_lost__the_stream_has_a_second_to_say_why) {
  for (const bool explained : {true, false}) {
    Collective core(Rank(0), 3);
    core.on_connected(Rank(1));
    WaitingCall call(1, {Rank(1)});
    core.start(call);
    core.on_lost(call, Rank(1), {ErrorCode::kCancelled, "from rank 1: it cancelled"},
                 after_ms(100));
    EXPECT_FALSE(core.broken());
    if (explained) {
      EXPECT_EQ(
          core.on_control(Rank(1), 1, AbortFrame{ErrorCode::kPeerLost, Rank(2), "rank 2 is lost"}),
          "");
    }
    core.on_timer(after_ms(1'100));
    ASSERT_TRUE(core.broken());
    EXPECT_EQ(core.broken()->code(), ErrorCode::kPeerLost);
    EXPECT_EQ(core.broken()->rank(), explained ? 2 : 1);
    EXPECT_EQ(message_of(core), explained ? "rank 2 is lost" : "from rank 1: it cancelled");
  }
}

TEST(CollectiveBlame, stall__calls_that_run_are_told_without_a_question) {
  Collective core(Rank(0), 3);
  core.on_connected(Rank(1));
  core.on_connected(Rank(2));
  WaitingCall first(2, {Rank(1), Rank(2)});
  core.start(first);
  CollectiveCall* call = nullptr;
  const DataFrame ahead{.operation = 3, .arrival = 0, .length = 8, .signature = 5, .started = 3};
  ASSERT_EQ(core.on_data(Rank(1), ahead, call), DataVerdict::kStall);
  core.on_stall(Rank(1), 3, after_ms(0));
  core.on_timer(after_ms(1'000));
  const auto answers = said<AnswerFrame>(core, 1);
  ASSERT_EQ(answers.size(), 2U);
  // Not called yet, since it waits for rank 2 in the call before.
  EXPECT_EQ(answers[0].operation, 2U);
  EXPECT_EQ(answers[0].signature, std::nullopt);
  EXPECT_EQ(answers[0].waits_for, Rank(2));
  EXPECT_EQ(answers[1].operation, 1U);
  EXPECT_EQ(answers[1].waits_for, Rank(2));
}

TEST(CollectiveBlame, not_called__holds_for_later_calls_too) {
  Collective core(Rank(0), 3);
  core.on_connected(Rank(1));
  WaitingCall first(1, {Rank(1)});
  WaitingCall second(1, {Rank(1)});
  core.start(first);
  core.start(second);
  first.ask_at = second.ask_at = after_ms(30'000);
  const AnswerFrame answer{1, std::nullopt, Rank(2), "has called nothing yet"};
  EXPECT_EQ(core.on_control(Rank(1), 0, answer), "");
  core.on_timer(after_ms(20'000));
  EXPECT_EQ(message_of(core), "not over within 20.0 s: rank 1 waits for rank 2");
}

TEST(CollectiveBlame, hang_up__last_words_behind_a_frame_that_waits_are_read) {
  Collective core(Rank(0), 3);
  core.on_connected(Rank(1));
  CollectiveCall* call = nullptr;
  const DataFrame ahead{.operation = 1, .arrival = 0, .length = 8, .signature = 5, .started = 1};
  ASSERT_EQ(core.on_data(Rank(1), ahead, call), DataVerdict::kStall);
  core.on_stall(Rank(1), 1, after_ms(0));
  core.on_hang_up(Rank(1));
  ASSERT_EQ(core.on_data(Rank(1), ahead, call), DataVerdict::kDrop);
  EXPECT_EQ(core.on_control(Rank(1), 1,
                            AbortFrame{ErrorCode::kPeerLost, Rank(2), "rank 2 is lost: reset"}),
            "");
  core.on_closed(Rank(1), "its connection closed");
  EXPECT_EQ(message_of(core), "rank 2 is lost: reset");
  EXPECT_EQ(core.broken()->code(), ErrorCode::kPeerLost);
  EXPECT_EQ(core.broken()->rank(), 2);
}

TEST(CollectiveBlame, reaching__a_rank_that_cannot_connect_names_the_other) {
  Collective core(Rank(2), 3);
  core.on_connected(Rank(1));
  core.set_reaching(Rank(0));
  EXPECT_EQ(core.on_control(Rank(1), 1, AskFrame{1, 5, "barrier"}), "");
  const auto answers = said<AnswerFrame>(core, 1);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].waits_for, Rank(0));
}

// Those that are connected to the last rank speak first, then those that never were, then all.
TEST(CollectiveBlame, deadline__those_who_know_more_speak_first) {
  for (const bool connected : {true, false}) {
    Collective core(Rank(0), 2);
    if (connected) core.on_connected(Rank(1));
    WaitingCall call(1, {Rank(1)});
    core.start(call);
    call.ask_at = after_ms(30'000);
    EXPECT_EQ(core.next_timer(), after_ms(connected ? 19'500 : 19'750));
    core.on_timer(*core.next_timer());
    EXPECT_EQ(message_of(core), connected
                                    ? "not over within 20.0 s: rank 1 is connected and does not "
                                      "answer: it hangs"
                                    : "not over within 20.0 s: rank 1 never connected");
    CollectiveCall* over = nullptr;
    Status status = ok_status();
    ASSERT_TRUE(core.poll_over(over, status));
    EXPECT_TRUE(over == &call && !status.ok());
    EXPECT_FALSE(core.poll_over(over, status));
    EXPECT_EQ(core.next_timer(), std::nullopt);
  }
}

// This rank was stopped until long after the deadline, or shortly before it, when the others have
// given up. What they say of it comes behind data.
TEST(CollectiveBlame, late__a_rank_that_was_stopped_reads_before_it_blames) {
  for (const std::int64_t wakes_ms : {60'000, 19'600}) {
    for (const bool told : {true, false}) {
      Collective core(Rank(0), 2);
      core.on_connected(Rank(1));
      WaitingCall call(1, {Rank(1)});
      core.start(call);
      core.on_timer(after_ms(1'000));
      core.on_timer(after_ms(wakes_ms));
      EXPECT_FALSE(core.broken()) << wakes_ms;
      EXPECT_LE(*core.next_timer(), after_ms(wakes_ms + 1'000));
      if (told) {
        const AbortFrame abort{ErrorCode::kTimeout, Rank(0), "rank 0 hangs"};
        EXPECT_EQ(core.on_control(Rank(1), 1, abort), "");
        EXPECT_EQ(message_of(core), "rank 0 hangs");
        continue;
      }
      // It is late once only.
      core.on_timer(after_ms(wakes_ms + 1'500));
      EXPECT_NE(message_of(core).find("not over within 20.0 s: rank 1"), std::string::npos);
    }
  }
}

// A call whose data moves by other means is about to be late, on rank 0 of four.
TEST(CollectiveBlame, roll__the_rank_that_says_nothing_is_named) {
  Collective core(Rank(0), 4);
  for (const int peer : {1, 2}) core.on_connected(Rank(peer));
  WaitingCall call(1, {Rank(1)});
  core.start(call);
  core.finish(call);
  core.call_roll();
  const auto asked = said<AskFrame>(core, 2);
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_EQ(asked[0], (AskFrame{1, 5, "barrier"}));
  EXPECT_EQ(core.on_control(Rank(1), 1, AnswerFrame{1, 5, std::nullopt, "barrier"}), "");
  core.fail_missing(Duration::milliseconds(20'000));
  EXPECT_EQ(message_of(core),
            "not over within 20.0 s: rank 2 is connected and does not answer: it hangs");
  EXPECT_EQ(core.broken()->code(), ErrorCode::kTimeout);
  EXPECT_EQ(core.broken()->rank(), 2);
  // The others are told.
  EXPECT_EQ(said<AbortFrame>(core, 1).size(), 1U);
}

TEST(CollectiveBlame, roll__nobody_is_named_who_answers_or_cannot_be_read) {
  Collective core(Rank(0), 4);
  for (const int peer : {1, 2}) core.on_connected(Rank(peer));
  core.call_roll();
  core.fail_missing(Duration::milliseconds(20'000));
  EXPECT_FALSE(core.broken()) << "nothing was called, so nobody was asked";
  WaitingCall call(1, {Rank(1)});
  core.start(call);
  core.finish(call);
  core.call_roll();
  EXPECT_EQ(core.on_control(Rank(1), 1, AnswerFrame{1, 5, std::nullopt, "barrier"}), "");
  // Rank 2 has made a later call, whose data is before its answer.
  core.on_stall(Rank(2), 2, after_ms(1));
  core.fail_missing(Duration::milliseconds(20'000));
  EXPECT_FALSE(core.broken());
}

}  // namespace
}  // namespace thalweg::proto
