#include "proto/straggler/decision.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"

namespace thalweg::proto {
namespace {

using MessageKind = StragglerMessageKind;

}  // namespace

StragglerDecision::StragglerDecision(std::uint64_t call, int self, int ranks, int segments)
    : call_(call), self_(self), ranks_(ranks) {
  std::fill_n(whole_.begin(), ranks, static_cast<std::uint8_t>(segments));
}

void StragglerDecision::send(int to, StragglerMessage message) {
  message.call = call_;
  outgoing_.push_back({to, message});
}

void StragglerDecision::vote_whole() {
  if (vote_ || promised_ > 0) return;
  vote(0, whole_);
}

void StragglerDecision::vote(std::uint64_t ballot, const StragglerCut& cut) {
  vote_ = ballot;
  vote_cut_ = cut;
  send(-1, {.kind = MessageKind::kVote, .ballot = ballot, .cut = cut});
  note_vote(self_, ballot, cut);
}

void StragglerDecision::note_vote(int from, std::uint64_t ballot, const StragglerCut& cut) {
  Votes& votes = votes_[ballot];
  votes.from |= set_of(from);
  votes.cut = cut;
  if (!decided_ && std::popcount(votes.from) >= majority()) decided_ = votes.cut;
}

void StragglerDecision::propose(const StragglerCut& held) {
  const auto ranks = static_cast<std::uint64_t>(ranks_);
  const std::uint64_t round = std::max(promised_, own_) / ranks + 1;
  own_ = round * ranks + static_cast<std::uint64_t>(self_);
  promises_.clear();
  choice_.reset();
  settled_ = false;
  const StragglerMessage prepare{.kind = MessageKind::kPrepare, .ballot = own_};
  send(-1, prepare);
  on_message(self_, prepare, held);
}

void StragglerDecision::promised(int from, const StragglerMessage& message) {
  if (message.ballot != own_ || settled_ || choice_) return;
  promises_[from] = message;
  if (std::ssize(promises_) < majority()) return;
  Choice choice{.free = true, .cut = whole_};
  std::uint64_t latest = 0;
  int whole_votes = ranks_ - static_cast<int>(promises_.size());
  for (const auto& [rank, promise] : promises_) {
    for (std::size_t r = 0; r < static_cast<std::size_t>(ranks_); ++r) {
      choice.cut[r] = std::min(choice.cut[r], promise.held[r]);
    }
    if (promise.has_vote && promise.vote == 0) ++whole_votes;
  }
  if (whole_votes >= majority()) choice = {.free = false, .cut = whole_};
  for (const auto& [rank, promise] : promises_) {
    if (!promise.has_vote || promise.vote <= latest) continue;
    latest = promise.vote;
    choice = {.free = false, .cut = promise.cut};
  }
  choice_ = choice;
}

void StragglerDecision::settle(const StragglerCut& cut) {
  CHECK(choice_ && (choice_->free || cut == choice_->cut));
  choice_.reset();
  settled_ = true;
  const StragglerMessage accept{.kind = MessageKind::kAccept, .ballot = own_, .cut = cut};
  send(-1, accept);
  on_message(self_, accept, {});
}

void StragglerDecision::on_message(int from, const StragglerMessage& message,
                                   const StragglerCut& held) {
  if (message.kind == MessageKind::kPrepare && message.ballot > promised_) {
    promised_ = message.ballot;
    const StragglerMessage promise{.kind = MessageKind::kPromise,
                                   .has_vote = vote_.has_value(),
                                   .ballot = promised_,
                                   .vote = vote_.value_or(0),
                                   .held = held,
                                   .cut = vote_cut_};
    if (from == self_) {
      promised(self_, promise);
    } else {
      send(from, promise);
    }
  } else if (message.kind == MessageKind::kPromise) {
    promised(from, message);
  } else if (message.kind == MessageKind::kAccept && message.ballot >= promised_ &&
             message.ballot > 0) {
    promised_ = message.ballot;
    if (vote_ != message.ballot) vote(message.ballot, message.cut);
  } else if (message.kind == MessageKind::kVote) {
    note_vote(from, message.ballot, message.cut);
  }
}

}  // namespace thalweg::proto
