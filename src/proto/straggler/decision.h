// StragglerDecision: how the ranks agree, for one call, which segments of stalled owners are void.
// One object is one rank's part. It has no clock: its user says when to propose.
//
// It is Paxos for one value, a StragglerCut, with a first ballot that needs no proposer. A rank
// that holds the whole result votes for it in ballot 0, once, unless it has promised a later
// ballot. A proposer asks for promises in a ballot of its own, and with those of a majority
// proposes
//  - the cut of the latest vote in a ballot above 0 among them, if there is one;
//  - the whole result if a majority may have voted for it in ballot 0: those among the promises,
//  and
//    all ranks that have not promised;
//  - otherwise what it likes. What all ranks of the majority hold may be kept, the rest is void.
// A cut is decided when a majority has voted for it in one ballot. Every vote goes to all ranks.
//
// Invariants:
// 1. No two ranks decide differently, however messages are delayed.
// 2. A rank votes in no ballot below one that it has promised.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "proto/straggler/message.h"

namespace thalweg::proto {

class StragglerDecision {
 public:
  StragglerDecision(std::uint64_t call, int self, int ranks, int segments);

  struct Outgoing {
    int to = -1;  // below 0: all other ranks
    StragglerMessage message;
  };
  // What is to be sent; empties it.
  [[nodiscard]] std::vector<Outgoing> take_outgoing() { return std::exchange(outgoing_, {}); }

  // This rank holds the whole result.
  void vote_whole();
  // Begins a ballot above all that were seen. `held`: what this rank holds now.
  void propose(const StragglerCut& held);
  // `held`: what this rank holds now. Take what is to be sent afterwards.
  void on_message(int from, const StragglerMessage& message, const StragglerCut& held);

  struct Choice {
    bool free = false;
    StragglerCut cut = {};  // free: what all that promised hold; otherwise what must be proposed
  };
  // Set when this rank's proposal has the promises it needs; then call settle() at once.
  [[nodiscard]] const std::optional<Choice>& choice() const { return choice_; }
  void settle(const StragglerCut& cut);

  // Some ballot above 0 has begun, so that this rank cannot vote in ballot 0 any more.
  [[nodiscard]] bool balloting() const { return promised_ > 0; }
  [[nodiscard]] const std::optional<StragglerCut>& decided() const { return decided_; }
  [[nodiscard]] const StragglerCut& whole() const { return whole_; }
  [[nodiscard]] int majority() const { return ranks_ / 2 + 1; }

 private:
  struct Votes {
    RankSet from = 0;
    StragglerCut cut = {};
  };
  void send(int to, StragglerMessage message);
  void vote(std::uint64_t ballot, const StragglerCut& cut);
  void note_vote(int from, std::uint64_t ballot, const StragglerCut& cut);
  void promised(int from, const StragglerMessage& message);

  std::uint64_t call_;
  int self_;
  int ranks_;
  StragglerCut whole_ = {};
  std::vector<Outgoing> outgoing_;
  // As a voter.
  std::uint64_t promised_ = 0;
  std::optional<std::uint64_t> vote_;  // the ballot of its last vote
  StragglerCut vote_cut_ = {};
  // As a proposer.
  std::uint64_t own_ = 0;  // its ballot; 0: none
  std::map<int, StragglerMessage> promises_;
  std::optional<Choice> choice_;
  bool settled_ = false;
  // As a learner.
  std::map<std::uint64_t, Votes> votes_;  // [ballot]
  std::optional<StragglerCut> decided_;
};

}  // namespace thalweg::proto
