// Who is late, and what is done about it.
#include <algorithm>
#include <bit>

#include "proto/straggler/group.h"

namespace thalweg::proto {

bool StragglerGroup::may_leave(std::uint64_t number, Call& call, int segment, RankSet missing,
                               Time now) {
  const auto due = sums_due(call);
  if (!due || std::popcount(all_ & ~missing) < majority_) return false;
  const Duration quiet = quiet_of(call, *call.kind->contributions.usual());
  Time late = call.start;
  for (int r = 0; r < ranks_; ++r) {
    // A rank that was late before and has been silent since is not waited for again.
    if ((missing & ~suspects_ & set_of(r)) == 0) continue;
    late = std::max({late, *due, call.heard[static_cast<std::size_t>(r)] + quiet});
  }
  if (now < late) {
    wake_at(call, late);
    return false;
  }
  const std::int64_t amount = call.layout.count(self_, segment) * std::popcount(missing);
  if (!within_reach(number) || !call.kind->sums.may_leave(call.index, amount)) return false;
  call.kind->sums.leave(call.index, amount);
  suspects_ |= missing;
  counts_.deadline = late - call.start;
  return true;
}

RankSet StragglerGroup::late_owners(Call& call, Time now) const {
  const auto due = results_due(call);
  if (!due) return 0;
  const Duration quiet = quiet_of(call, *call.kind->results.usual());
  const StragglerCut have = held(call);
  RankSet missing = 0;
  for (int owner = 0; owner < ranks_; ++owner) {
    const auto o = static_cast<std::size_t>(owner);
    if (have[o] < call.layout.segments && (call.waiting & set_of(owner)) == 0) {
      missing |= set_of(owner);
    }
  }
  // As in may_leave(): owners that are still silent, when all others are done.
  if ((missing & ~suspects_) == 0) return missing & ~set_of(self_);
  RankSet late = 0;
  for (int owner = 0; owner < ranks_; ++owner) {
    if (owner == self_ || (missing & set_of(owner)) == 0) continue;
    const Time silent = std::max(*due, call.heard_owner[static_cast<std::size_t>(owner)] + quiet);
    if (now >= silent) {
      late |= set_of(owner);
    } else {
      wake_at(call, silent);
    }
  }
  return late;
}

// The lowest rank that is not late proposes first; the others wait a while longer, each in its
// turn.
void StragglerGroup::consider_ballot(std::uint64_t number, Call& call, Time now) {
  if (call.decision->choice()) {
    choose(number, call, now);
    return;
  }
  const auto usual = call.kind->results.usual();
  const Duration quiet = quiet_of(call, usual.value_or(Duration()));
  const RankSet late = late_owners(call, now);
  if (late == 0 && !call.decision->balloting()) return;
  const int before = std::popcount(all_ & ~late & (set_of(self_) - 1));
  if (call.last_ballot) {
    const Time again = *call.last_ballot + quiet * (4 + before);
    if (now < again) {
      wake_at(call, again);
      return;
    }
  } else {
    if (std::popcount(all_ & ~late) < majority_ || !within_reach(number)) return;
    std::int64_t amount = 0;
    const StragglerCut have = held(call);
    for (int owner = 0; owner < ranks_; ++owner) {
      const auto o = static_cast<std::size_t>(owner);
      if ((late & set_of(owner)) == 0) continue;
      amount += call.layout.rest(owner, have[o]) * ranks_;
    }
    if (!earlier_decided(number) || !call.kind->voids.may_leave(call.index, amount)) return;
    if (!call.late_since) call.late_since = now;
    const Time turn = *call.late_since + quiet * before;
    if (now < turn) {
      wake_at(call, turn);
      return;
    }
  }
  call.last_ballot = now;
  wake_at(call, now + quiet * (4 + before));
  call.decision->propose(held(call));
  if (call.decision->choice()) choose(number, call, now);
}

// Only late owners lose something, and only what this rank's budget allows; otherwise all wait.
void StragglerGroup::choose(std::uint64_t number, Call& call, Time now) {
  const StragglerDecision::Choice choice = *call.decision->choice();
  if (!choice.free) {
    call.decision->settle(choice.cut);
    return;
  }
  const RankSet late = late_owners(call, now);
  StragglerCut cut = call.decision->whole();
  std::int64_t amount = 0;
  for (int owner = 0; owner < ranks_; ++owner) {
    const auto o = static_cast<std::size_t>(owner);
    if ((late & set_of(owner)) == 0) continue;
    cut[o] = choice.cut[o];
    amount += call.layout.rest(owner, cut[o]) * ranks_;
  }
  const bool may = within_reach(number) && earlier_decided(number) &&
                   call.kind->voids.may_leave(call.index, amount);
  if (may && amount > 0) counts_.deadline = now - call.start;
  call.decision->settle(may ? cut : call.decision->whole());
}

}  // namespace thalweg::proto
