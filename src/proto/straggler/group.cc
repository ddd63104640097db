#include "proto/straggler/group.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace thalweg::proto {
namespace {

using MessageKind = StragglerMessageKind;

// Most messages to one call that this rank has not started, from all ranks.
constexpr std::size_t kMostEarlyMessages = std::size_t{1} << 16;

}  // namespace

StragglerGroup::StragglerGroup(int self, int ranks, const StragglerRules& rules)
    : self_(self), ranks_(ranks), majority_(ranks / 2 + 1), all_(all_ranks(ranks)), rules_(rules) {
  CHECK(ranks >= 3 && ranks <= kStragglerMostRanks && self >= 0 && self < ranks);
}

// A rank that sends nothing during a whole call costs (n − 1) / n of a contribution, which other
// owners leave out, and the contributions of n ranks to its own n-th of the tensor. The bound is
// divided in that ratio.
StragglerGroup::Kind& StragglerGroup::kind_of(const StragglerCall& call) {
  const auto key = std::tuple(call.layout.elements, call.bound, call.window);
  std::unique_ptr<Kind>& kind = kinds_[key];
  if (!kind) {
    const double sums = call.bound * (ranks_ - 1) / (2 * ranks_ - 1);
    kind = std::make_unique<Kind>(Kind{
        .sums = StragglerBudget(sums, call.window, call.layout.rest(self_, 0) * ranks_),
        .voids = StragglerBudget(call.bound - sums, call.window, call.layout.elements * ranks_),
        .contributions = {},
        .results = {}});
  }
  return *kind;
}

std::uint64_t StragglerGroup::start(Time now, const StragglerCall& started) {
  CHECK(started.layout.ranks == ranks_);
  const std::uint64_t number = next_++;
  Call& call = calls_[number];
  const auto ranks = static_cast<std::size_t>(ranks_);
  const auto segments = static_cast<std::size_t>(started.layout.segments);
  call.layout = started.layout;
  call.kind = &kind_of(started);
  call.index = call.kind->calls++;
  call.start = now;
  call.decision.emplace(number, self_, ranks_, call.layout.segments);
  call.arrived.assign(segments, set_of(self_));
  call.heard.assign(ranks, now);
  call.heard_owner.assign(ranks, now);
  call.data.assign(ranks, 0);
  call.sets.assign(ranks, std::vector<RankSet>(segments, 0));
  for (int r = 0; r < ranks_; ++r) {
    if ((lost_ & set_of(r)) != 0 && !call.failed) fail(number, call, r);
  }
  const auto early = early_.extract(number);
  if (!early.empty()) {
    for (const auto& [from, message] : early.mapped()) on_message(now, from, message);
  }
  if (!call.over) look(number, call, now);
  return number;
}

void StragglerGroup::on_contribution(Time now, std::uint64_t number, int from, int segment) {
  const auto found = calls_.find(number);
  if (found == calls_.end()) return;
  Call& call = found->second;
  call.arrived[static_cast<std::size_t>(segment)] |= set_of(from);
  call.heard[static_cast<std::size_t>(from)] = now;
  suspects_ &= ~set_of(from);
  look(number, call, now);
}

void StragglerGroup::on_result(Time now, std::uint64_t number, int owner, int segment) {
  const auto found = calls_.find(number);
  if (found == calls_.end()) return;
  Call& call = found->second;
  call.data[static_cast<std::size_t>(owner)] |= std::uint32_t{1} << segment;
  call.heard_owner[static_cast<std::size_t>(owner)] = now;
  suspects_ &= ~set_of(owner);
  look(number, call, now);
}

void StragglerGroup::on_message(Time now, int from, const StragglerMessage& message) {
  suspects_ &= ~set_of(from);
  if (message.call >= next_) {
    if (message.kind == MessageKind::kGone) on_gone(from, message.set);
    auto& early = early_[message.call];
    if (message.call > next_ + kMostAhead || early.size() >= kMostEarlyMessages) {
      ++dropped_;
      return;
    }
    early.emplace_back(from, message);
    return;
  }
  if (message.kind == MessageKind::kGone) {
    on_gone(from, message.set);
    return;
  }
  const auto found = calls_.find(message.call);
  if (found == calls_.end()) return;  // a call that is settled here
  Call& call = found->second;
  const auto sender = static_cast<std::size_t>(from);
  if (message.kind == MessageKind::kSums) {
    if (message.segment >= call.layout.segments || (message.set & set_of(from)) == 0) {
      ++dropped_;
      return;
    }
    call.sets[sender][message.segment] = message.set;
    call.heard_owner[sender] = now;
  } else if (message.kind == MessageKind::kWaiting) {
    call.waiting |= set_of(from);
  } else {
    const auto fits = [&](const StragglerCut& cut) {
      return std::ranges::all_of(cut, [&](int count) { return count <= call.layout.segments; });
    };
    if (!fits(message.cut) || !fits(message.held)) {
      ++dropped_;
      return;
    }
    if (message.kind == MessageKind::kPrepare || message.kind == MessageKind::kAccept) {
      call.last_ballot = now;
    }
    call.decision->on_message(from, message, held(call));
    take_ballots(call);
  }
  look(message.call, call, now);
}

void StragglerGroup::on_lost(Time now, int rank) {
  lost_ |= set_of(rank);
  for (auto& [number, call] : calls_) {
    if (!call.over) look(number, call, now);
  }
}

// A rank that has failed takes no part in any call any more.
void StragglerGroup::on_gone(int from, RankSet culprit) {
  if (std::popcount(culprit) != 1) {
    ++dropped_;
    return;
  }
  lost_ |= culprit;
  for (auto& [number, call] : calls_) {
    if (call.over || (call.decision->decided() && !needs(call, from))) continue;
    fail(number, call, std::countr_zero(culprit));
  }
}

void StragglerGroup::on_settled(std::uint64_t call) { calls_.erase(call); }

void StragglerGroup::on_timeout(Time now) {
  for (auto& [number, call] : calls_) {
    if (!call.over && call.wake && *call.wake <= now) look(number, call, now);
  }
}

std::optional<Time> StragglerGroup::next_timeout() const {
  std::optional<Time> next;
  for (const auto& [number, call] : calls_) {
    if (!call.over && call.wake && (!next || *call.wake < *next)) next = call.wake;
  }
  return next;
}

bool StragglerGroup::poll_transmit(Outgoing& out) {
  if (outgoing_.empty()) return false;
  out = outgoing_.front();
  outgoing_.pop_front();
  return true;
}

bool StragglerGroup::poll_event(StragglerEvent& event) {
  if (events_.empty()) return false;
  event = events_.front();
  events_.pop_front();
  return true;
}

void StragglerGroup::tell_all(const StragglerMessage& message) {
  for (int r = 0; r < ranks_; ++r) {
    if (r != self_) outgoing_.push_back({r, message});
  }
}

void StragglerGroup::take_ballots(Call& call) {
  for (const StragglerDecision::Outgoing& out : call.decision->take_outgoing()) {
    if (out.to < 0) {
      tell_all(out.message);
    } else {
      outgoing_.push_back({out.to, out.message});
    }
  }
}

bool StragglerGroup::holds(const Call& call, int owner, int segment) const {
  const auto o = static_cast<std::size_t>(owner);
  return call.sets[o][static_cast<std::size_t>(segment)] != 0 &&
         (owner == self_ || (call.data[o] >> segment & 1U) != 0);
}

StragglerCut StragglerGroup::held(const Call& call) const {
  StragglerCut cut = {};
  for (int owner = 0; owner < ranks_; ++owner) {
    auto& count = cut[static_cast<std::size_t>(owner)];
    while (count < call.layout.segments && holds(call, owner, count)) ++count;
  }
  return cut;
}

Duration StragglerGroup::quiet_of(const Call& call, Duration usual) const {
  // With few segments, a rank that is not late is silent for longer between two of them.
  const double share = std::max(rules_.quiet, 1.0 / call.layout.segments);
  return std::max(rules_.least_quiet, Duration::seconds(usual.s() * share));
}

std::optional<Time> StragglerGroup::sums_due(const Call& call) const {
  const auto usual = call.kind->contributions.usual();
  if (!usual) return std::nullopt;
  return call.start + Duration::seconds(usual->s() * (1 + rules_.slack)) + rules_.margin;
}

// Owners may use up their own time first.
std::optional<Time> StragglerGroup::results_due(const Call& call) const {
  const auto usual = call.kind->results.usual();
  const auto sums = call.kind->contributions.usual();
  const auto due = sums_due(call);
  if (!usual || !due) return std::nullopt;
  const Duration extra = *due - (call.start + *sums);
  return call.start + Duration::seconds(usual->s() * (1 + rules_.slack)) + rules_.margin + extra;
}

bool StragglerGroup::earlier_decided(std::uint64_t number) const {
  return std::ranges::all_of(calls_, [&](const auto& entry) {
    return entry.first >= number || entry.second.decision->decided().has_value();
  });
}

// Whether the call cannot end without something that only this rank can send.
bool StragglerGroup::needs(const Call& call, int rank) const {
  if (call.over) return false;
  const auto& decided = call.decision->decided();
  const StragglerCut& cut = decided ? *decided : call.decision->whole();
  for (int s = 0; s < call.layout.segments; ++s) {
    const bool own_void = s >= cut[static_cast<std::size_t>(self_)];
    if (!own_void && !holds(call, self_, s) &&
        (call.arrived[static_cast<std::size_t>(s)] & set_of(rank)) == 0) {
      return true;
    }
    if (s < cut[static_cast<std::size_t>(rank)] && !holds(call, rank, s)) return true;
  }
  return false;
}

void StragglerGroup::fail(std::uint64_t number, Call& call, int rank) {
  call.over = call.failed = true;
  if (!std::exchange(told_gone_, true)) {
    tell_all({.kind = MessageKind::kGone, .call = number, .set = set_of(rank)});
  }
  events_.push_back({.kind = StragglerEvent::Kind::kFailed, .call = number, .rank = rank});
}

void StragglerGroup::look(std::uint64_t number, Call& call, Time now) {
  if (call.over) return;
  call.wake.reset();
  sum_what_is_there(number, call, now);
  const StragglerCut have = held(call);
  if (have == call.decision->whole()) {
    if (!std::exchange(call.learnt_results, true)) call.kind->results.learn(now - call.start);
    call.decision->vote_whole();
  }
  if (!call.decision->decided()) consider_ballot(number, call, now);
  take_ballots(call);
  finish(number, call, now);
  for (int r = 0; r < ranks_ && !call.over; ++r) {
    if ((lost_ & set_of(r)) != 0 && needs(call, r)) fail(number, call, r);
  }
}

void StragglerGroup::sum(std::uint64_t number, Call& call, int segment, RankSet set) {
  call.sets[static_cast<std::size_t>(self_)][static_cast<std::size_t>(segment)] = set;
  events_.push_back(
      {.kind = StragglerEvent::Kind::kSum, .call = number, .segment = segment, .set = set});
  tell_all({.kind = MessageKind::kSums,
            .segment = static_cast<std::uint8_t>(segment),
            .call = number,
            .set = set});
}

void StragglerGroup::sum_what_is_there(std::uint64_t number, Call& call, Time now) {
  const auto& decided = call.decision->decided();
  const int end = decided ? (*decided)[static_cast<std::size_t>(self_)] : call.layout.segments;
  bool all = true;
  for (int s = 0; s < end; ++s) {
    if (holds(call, self_, s)) continue;
    const RankSet there = call.arrived[static_cast<std::size_t>(s)];
    if (there == all_ || may_leave(number, call, s, all_ & ~there, now)) {
      sum(number, call, s, there);
    } else {
      all = false;
    }
  }
  if (all && !std::exchange(call.learnt_sums, true)) {
    const auto& sets = call.sets[static_cast<std::size_t>(self_)];
    const bool exact = std::ranges::all_of(sets, [&](RankSet set) { return set == all_; });
    if (exact) call.kind->contributions.learn(now - call.start);
  }
  const auto due = sums_due(call);
  if (all || !due) return;
  // What is still missing cannot be left out now: the others must not take this owner for late.
  if (now >= *due + quiet_of(call, *call.kind->contributions.usual())) {
    if (!std::exchange(call.said_waiting, true)) {
      tell_all({.kind = MessageKind::kWaiting, .call = number});
    }
  } else {
    wake_at(call, *due + quiet_of(call, *call.kind->contributions.usual()));
  }
}

void StragglerGroup::finish(std::uint64_t number, Call& call, Time now) {
  const auto& decided = call.decision->decided();
  if (!decided) return;
  if (!std::exchange(call.told_decided, true)) {
    std::int64_t amount = 0;
    for (int owner = 0; owner < ranks_; ++owner) {
      const std::uint8_t end = (*decided)[static_cast<std::size_t>(owner)];
      amount += call.layout.rest(owner, end) * ranks_;
      if (end < call.layout.segments) suspects_ |= set_of(owner) & ~set_of(self_);
    }
    call.kind->voids.leave(call.index, amount);
    events_.push_back({.kind = StragglerEvent::Kind::kDecided, .call = number});
  }
  double left = 0;
  for (int owner = 0; owner < ranks_; ++owner) {
    const int end = (*decided)[static_cast<std::size_t>(owner)];
    for (int s = 0; s < end; ++s) {
      if (!holds(call, owner, s)) return;
      const RankSet set = call.sets[static_cast<std::size_t>(owner)][static_cast<std::size_t>(s)];
      left += static_cast<double>(call.layout.count(owner, s) * std::popcount(all_ & ~set));
    }
    left += static_cast<double>(call.layout.rest(owner, end) * ranks_);
  }
  call.over = true;
  ++counts_.calls;
  if (left == 0) ++counts_.exact;
  if (call.layout.elements > 0) {
    counts_.contributions += left / static_cast<double>(call.layout.elements);
  }
  events_.push_back({.kind = StragglerEvent::Kind::kOver, .call = number});
  // Calls after this one may leave out now what they could not before.
  for (auto& [later, other] : calls_) {
    if (later > number && !other.over) wake_at(other, now);
  }
}

RankSet StragglerGroup::set_of_result(std::uint64_t number, int owner, int segment) const {
  const Call& call = calls_.at(number);
  const auto& decided = call.decision->decided();
  if (decided && segment >= (*decided)[static_cast<std::size_t>(owner)]) return 0;
  return call.sets[static_cast<std::size_t>(owner)][static_cast<std::size_t>(segment)];
}

bool StragglerGroup::summed(std::uint64_t number, int segment) const {
  return holds(calls_.at(number), self_, segment);
}

const StragglerCut& StragglerGroup::cut_of(std::uint64_t number) const {
  return *calls_.at(number).decision->decided();
}

std::optional<int> StragglerGroup::waits_for(std::uint64_t number) const {
  const auto found = calls_.find(number);
  if (found == calls_.end()) return std::nullopt;
  for (int r = 0; r < ranks_; ++r) {
    if (r != self_ && needs(found->second, r)) return r;
  }
  return std::nullopt;
}

}  // namespace thalweg::proto
