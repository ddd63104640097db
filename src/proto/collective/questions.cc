// Questions between ranks that wait for each other, and how they find the rank to blame.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "proto/collective/collective.h"

namespace thalweg::proto {
namespace {

std::string late_begin(Duration limit) {
  return fmt::format("not over within {}", to_human(limit));
}

std::string hangs(int rank) {
  return fmt::format("rank {} is connected and does not answer: it hangs", rank);
}

}  // namespace

// The rank that waits for the last one in the chain gives up a moment early, so that the others
// hear of it before their own deadline. A rank that was never connected to that one knows less, and
// lets those that are have the first word. So does a call that is not the oldest of its rank: that
// a peer has not made it may be a consequence of what the oldest waits for.
Time Collective::gives_up_at(const CollectiveCall& call) const {
  if (&call != running_.front() || call.postponed || !is_last_in_chain(call)) return call.deadline;
  const Duration early = std::min(call.limit / 8, Duration::milliseconds(500));
  return call.deadline - (at(*call.waits_for()).connected ? early : early / 2);
}

void Collective::on_stall(Rank peer, std::uint32_t operation, Time now) {
  Peer& state = at(peer);
  if (state.stalled_operation == 0) state.stalled_at = now;
  state.stalled_operation = operation;
}

std::optional<Time> Collective::next_timer() const {
  std::optional<Time> next;
  const auto consider = [&](Time time) { next = next ? std::min(*next, time) : time; };
  for (const CollectiveCall* call : running_) {
    if (!call->has_times) continue;
    consider(call->ask_at);
    consider(gives_up_at(*call));
  }
  for (const Peer& peer : peers_) {
    if (peer.stalled_operation != 0) consider(peer.stalled_at + CollectiveCall::kAskAfter);
  }
  return next;
}

void Collective::on_timer(Time now) {
  for (CollectiveCall* call : running_) {
    if (!call->has_times) continue;
    if (now >= gives_up_at(*call) && !postpones(*call, now)) {
      // The loop must end here, because fail() empties running_.
      fail(call->lost.value_or(late_error(*call)));
      return;
    }
    if (now >= call->ask_at) ask_peers(*call);
  }
  tell_stalled(now);
}

// It would have asked its peers on the way.
bool Collective::postpones(CollectiveCall& call, Time now) {
  if (call.postponed || now < std::min(call.ask_at, call.deadline) + kLate) return false;
  call.postponed = true;
  call.deadline = now + kReadTime;
  return true;
}

void Collective::ask_peers(CollectiveCall& call) {
  call.ask_at = call.ask_at + CollectiveCall::kAskAfter;
  for (const Rank peer : call.peers()) {
    Peer& state = at(peer);
    if (!state.connected) continue;
    say(peer, AskFrame{call.number, call.signature, call.text});
    if (const auto answer = state.answer_about(call.number); answer != state.answers.end()) {
      answer->ask();
    }
    if (state.not_called && &call == running_.front()) state.not_called->ask();
  }
}

void Collective::answer(Rank peer, const AskFrame& ask) {
  const Called called = called_as(ask.operation);
  if (ask.operation > started_) {
    say(peer, not_called(ask.operation));
  } else if (!called.known) {
    say(peer, AnswerFrame{ask.operation, std::nullopt, std::nullopt, "has finished it long ago"});
  } else if (called.signature != ask.signature) {
    report_difference(peer, ask.operation, *called.text, ask.text);
  } else if (called.running != nullptr) {
    say(peer, answer_about(*called.running));
  } else {
    say(peer, AnswerFrame{ask.operation, called.signature, std::nullopt, *called.text});
  }
}

AnswerFrame Collective::answer_about(const CollectiveCall& call) const {
  return {call.number, call.signature, culprit_of(call), call.text};
}

void Collective::take_answer(Rank peer, const AnswerFrame& frame) {
  if (!frame.signature && frame.operation > at(peer).started) at(peer).not_called = Answered{frame};
  const Called called = called_as(frame.operation);
  if (called.running == nullptr) return;
  if (frame.signature && *frame.signature != called.signature) {
    report_difference(peer, frame.operation, *called.text, frame.text);
    return;
  }
  const auto place = at(peer).answer_about(frame.operation);
  if (place == at(peer).answers.end()) {
    at(peer).answers.push_back({frame});
  } else {
    *place = {frame};
  }
}

void Collective::report_difference(Rank peer, std::uint32_t number, const std::string& ours,
                                   const std::string& theirs) {
  fail({ErrorCode::kMismatch,
        fmt::format("the ranks do not call the same: as operation {}, rank {} calls {}, rank {} "
                    "calls {}",
                    number, rank_.value(), ours, peer.value(), theirs)});
}

// A rank that has not made a call may wait in an older one.
AnswerFrame Collective::not_called(std::uint32_t operation) const {
  AnswerFrame reply{operation, std::nullopt, reaching_, "has called nothing yet"};
  if (!reaching_ && !running_.empty()) reply.waits_for = culprit_of(*running_.front());
  if (started_ > 0) {
    reply.text = fmt::format("has not called it yet (its last call, number {}, was {})", started_,
                             past_[started_ % kPast].text);
  }
  return reply;
}

// Questions behind a frame that stalls its stream are not read. They are answered nevertheless: the
// ones about calls that were not made here, and those about calls that run.
void Collective::tell_stalled(Time now) {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    if (!peer.connected || peer.stalled_operation == 0) continue;
    if (now < peer.stalled_at + CollectiveCall::kAskAfter) continue;
    peer.stalled_at = now;
    const Rank to(static_cast<std::int32_t>(i));
    say(to, not_called(started_ + 1));
    for (const CollectiveCall* call : running_) {
      if (std::ranges::binary_search(call->peers(), to)) say(to, answer_about(*call));
    }
  }
}

// The last call is one that the peers made, too, or are about to make.
void Collective::call_roll() {
  if (broken_ || started_ == 0) return;
  const Past& last = past_[started_ % kPast];
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (!peers_[i].connected) continue;
    peers_[i].silent = true;
    say(Rank(static_cast<std::int32_t>(i)), AskFrame{started_, last.signature, last.text});
  }
}

std::optional<Rank> Collective::silent_rank() const {
  // What a peer says behind a frame that stalls its stream is not read.
  const auto place = std::ranges::find_if(peers_, [](const Peer& peer) {
    return peer.connected && peer.silent && peer.stalled_operation == 0;
  });
  if (place == peers_.end()) return std::nullopt;
  return Rank(static_cast<std::int32_t>(place - peers_.begin()));
}

void Collective::fail_missing(Duration limit) {
  const std::optional<Rank> rank = silent_rank();
  if (!rank) return;
  fail({ErrorCode::kTimeout, fmt::format("{}: {}", late_begin(limit), hangs(rank->value())),
        rank->value()});
}

std::optional<Rank> Collective::culprit_of(const CollectiveCall& call) const {
  const std::optional<Rank> rank = call.waits_for();
  if (!rank || is_last_in_chain(call)) return rank;
  return answer_of(*rank, call)->waits_for;
}

bool Collective::is_last_in_chain(const CollectiveCall& call) const {
  const std::optional<Rank> rank = call.waits_for();
  if (!rank) return false;
  const AnswerFrame* answer = answer_of(*rank, call);
  return answer == nullptr || !answer->waits_for || !call.obstacle(*rank).empty();
}

const AnswerFrame* Collective::answer_of(Rank peer, const CollectiveCall& call) const {
  for (const Answered& answer : at(peer).answers) {
    if (answer.frame.operation == call.number) return answer.holds() ? &answer.frame : nullptr;
  }
  // A rank that has not made a call has not made later ones either. It may not have read the
  // question about them.
  const std::optional<Answered>& other = at(peer).not_called;
  const bool holds = other && other->holds() && other->frame.operation > at(peer).started &&
                     other->frame.operation <= call.number;
  return holds ? &other->frame : nullptr;
}

std::optional<int> Collective::blamed_for(const CollectiveCall& call) const {
  const std::optional<Rank> culprit = culprit_of(call);
  // If ranks wait for each other, none of them is to blame.
  if (!culprit || *culprit == rank_ || !call.obstacle(*call.waits_for()).empty()) {
    return std::nullopt;
  }
  return culprit->value();
}

Error Collective::late_error(const CollectiveCall& call) const {
  return {ErrorCode::kTimeout, late_text(call), blamed_for(call)};
}

std::string Collective::late_text(const CollectiveCall& call) const {
  const std::optional<Rank> rank = call.waits_for();
  const std::string begin = late_begin(call.limit_in_words());
  if (!rank) return begin;
  const int name = rank->value();
  if (!at(*rank).connected) return fmt::format("{}: rank {} never connected", begin, name);
  if (const std::string obstacle = call.obstacle(*rank); !obstacle.empty()) {
    return fmt::format("{}: {}", begin, obstacle);
  }
  const AnswerFrame* reply = answer_of(*rank, call);
  if (reply == nullptr) return fmt::format("{}: {}", begin, hangs(name));
  if (reply->waits_for == rank_) {
    return fmt::format("{}: rank {} and rank {} wait for each other", begin, rank_.value(), name);
  }
  if (reply->waits_for) {
    return fmt::format("{}: rank {} waits for rank {}", begin, name, reply->waits_for->value());
  }
  if (reply->signature == call.signature) {
    return fmt::format(
        "{}: what rank {} is to send does not come, or what is sent to it is not taken", begin,
        name);
  }
  return fmt::format("{}: rank {} {}", begin, name, reply->text);
}

}  // namespace thalweg::proto
