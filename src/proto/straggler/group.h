// StragglerGroup: allreduces that end without the ranks that stall, without I/O. One object is one
// rank's end of all such calls of a communicator (docs/concepts/stragglers.md, docs/adr/0025).
//
// The way of a call. The tensor has one shard for each rank, its owner, and each shard some
// segments. Every rank sends each owner its contribution to the owner's shard. The owner sums each
// segment, in the order of ranks, when all contributions are there, and sends the sum with the set
// of its contributors to all. A rank that holds all sums says so to all (a vote); when it knows
// that a majority does, the call is over. So one place makes each sum, and all ranks copy it.
//
// Stalls. A rank is late for an owner if the usual time of recent calls has passed and it has sent
// nothing for a while. The owner leaves the segments that a late rank has not sent out of the sums,
// as far as its budget goes. An owner is late for another rank in the same way; then the ranks
// agree (decision.h) from which segment on its shard is void, as far as the budget of voids goes.
// Where the budget is used up, everybody waits.
//
// The driver moves the data. It calls on_contribution() and on_result() when a segment has arrived
// whole, on_message() for messages, on_timeout() at next_timeout(), and after each of these polls
// until nothing is left. What is left out of a sum, and what is void, belongs to the residual of
// the rank that contributed it: set_of_result() says which.
//
// Invariants:
// 1. All ranks end a call with the same sets of contributors.
// 2. Of any `window` consecutive calls of one kind (size and bound) at most `bound` of all
//    contributions (ranks × elements) is left out.
// 3. Nothing is left out while a call that is kMostBehind or more before is not settled, so that a
//    rank that lags is at most so many calls behind.
// 4. A rank that is lost fails the calls that still need something from it, and all later ones.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/units.h"
#include "proto/straggler/budget.h"
#include "proto/straggler/decision.h"
#include "proto/straggler/message.h"

namespace thalweg::proto {

struct StragglerRules {
  // A rank or an owner is late at the earliest at usual × (1 + slack) + margin after the start.
  double slack = 0.1;
  Duration margin = Duration::milliseconds(2);
  // It must also have sent nothing for usual × quiet, and for the least time.
  double quiet = 0.125;
  Duration least_quiet = Duration::milliseconds(5);
};

struct StragglerCall {
  StragglerLayout layout;
  double bound = 0;  // in [0, 1)
  int window = 100;  // calls; 1 or more
};

struct StragglerEvent {
  enum class Kind : std::uint8_t {
    kSum,      // sum this segment of the own shard over `set`, and send it to all
    kDecided,  // no further segment of the own shard will be summed; see cut_of()
    kOver,     // all results are here
    kFailed,   // `rank` is lost
  };
  Kind kind = Kind::kSum;
  std::uint64_t call = 0;
  int segment = 0;
  RankSet set = 0;
  int rank = -1;
};

// Counts over the life of a group.
struct StragglerCounts {
  std::uint64_t calls = 0;   // that are over
  std::uint64_t exact = 0;   // of these, calls that left nothing out
  double contributions = 0;  // left out, in whole tensors of one rank
  Duration deadline = {};    // the last that was used, from the start of a call; 0: none
};

class StragglerGroup {
 public:
  static constexpr std::uint64_t kMostBehind = 8;
  static constexpr std::uint64_t kMostAhead = 4096;  // calls of others before this rank's

  // Requires 3 to kStragglerMostRanks ranks.
  StragglerGroup(int self, int ranks, const StragglerRules& rules = {});

  // Starts the next call and returns its number, which is the same on all ranks.
  std::uint64_t start(Time now, const StragglerCall& call);
  void on_contribution(Time now, std::uint64_t call, int from, int segment);
  void on_result(Time now, std::uint64_t call, int owner, int segment);
  // A message that makes no sense is dropped and counted.
  void on_message(Time now, int from, const StragglerMessage& message);
  // Nothing more comes from the rank.
  void on_lost(Time now, int rank);
  // The driver has ended the call, and nothing of it is under way on this rank any more.
  void on_settled(std::uint64_t call);
  void on_timeout(Time now);

  struct Outgoing {
    int to = 0;
    StragglerMessage message;
  };
  bool poll_transmit(Outgoing& out);
  bool poll_event(StragglerEvent& event);
  // None: there is nothing to wait for.
  [[nodiscard]] std::optional<Time> next_timeout() const;

  // For calls that are not settled. The set of contributors to a result; 0: void or not known.
  [[nodiscard]] RankSet set_of_result(std::uint64_t call, int owner, int segment) const;
  // Whether this segment of the own shard was summed.
  [[nodiscard]] bool summed(std::uint64_t call, int segment) const;
  // Requires kDecided.
  [[nodiscard]] const StragglerCut& cut_of(std::uint64_t call) const;
  // A rank that the call waits for; none: for no rank in particular.
  [[nodiscard]] std::optional<int> waits_for(std::uint64_t call) const;
  [[nodiscard]] const StragglerCounts& counts() const { return counts_; }
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }

 private:
  // The calls of one size and bound.
  struct Kind {
    StragglerBudget sums;   // what this rank leaves out of its shard's sums
    StragglerBudget voids;  // what the ranks agree to be void
    StragglerPace contributions;
    StragglerPace results;
    std::uint64_t calls = 0;  // started
  };
  struct Call {
    StragglerLayout layout;
    Kind* kind = nullptr;
    std::uint64_t index = 0;  // among the calls of its kind
    Time start;
    std::optional<StragglerDecision> decision;
    // As an owner.
    std::vector<RankSet> arrived;  // [segment]
    std::vector<Time> heard;       // [rank]: its last contribution
    bool said_waiting = false;
    bool learnt_sums = false;
    // As a receiver.
    std::vector<std::uint32_t> data;         // [owner]: bit s: the sum of segment s is here
    std::vector<std::vector<RankSet>> sets;  // [owner][segment]; 0: not known
    std::vector<Time> heard_owner;           // [owner]: its last result
    RankSet waiting = 0;                     // owners that wait for contributions
    bool learnt_results = false;
    std::optional<Time> late_since;   // when this rank first found owners late
    std::optional<Time> last_ballot;  // when this rank last took part in one
    bool told_decided = false;
    bool over = false;
    bool failed = false;
    std::optional<Time> wake;
  };

  Kind& kind_of(const StragglerCall& call);
  void look(std::uint64_t number, Call& call, Time now);
  void sum_what_is_there(std::uint64_t number, Call& call, Time now);
  void sum(std::uint64_t number, Call& call, int segment, RankSet set);
  // Whether the missing ranks are late, and may be left out of the segment.
  bool may_leave(std::uint64_t number, Call& call, int segment, RankSet missing, Time now);
  void consider_ballot(std::uint64_t number, Call& call, Time now);
  [[nodiscard]] RankSet late_owners(Call& call, Time now) const;
  void choose(std::uint64_t number, Call& call, Time now);
  void finish(std::uint64_t number, Call& call, Time now);
  void fail(std::uint64_t number, Call& call, int rank);
  void on_gone(int from, RankSet culprit);
  void take_ballots(Call& call);
  void tell_all(const StragglerMessage& message);
  [[nodiscard]] bool needs(const Call& call, int rank) const;
  [[nodiscard]] bool holds(const Call& call, int owner, int segment) const;
  [[nodiscard]] StragglerCut held(const Call& call) const;
  [[nodiscard]] bool within_reach(std::uint64_t number) const {
    return calls_.begin()->first + kMostBehind > number;
  }
  [[nodiscard]] bool earlier_decided(std::uint64_t number) const;
  [[nodiscard]] Duration quiet_of(const Call& call, Duration usual) const;
  // When ranks, or owners, may be late; none: not known yet.
  [[nodiscard]] std::optional<Time> sums_due(const Call& call) const;
  [[nodiscard]] std::optional<Time> results_due(const Call& call) const;
  static void wake_at(Call& call, Time time) {
    if (!call.wake || time < *call.wake) call.wake = time;
  }

  int self_;
  int ranks_;
  int majority_;
  RankSet all_;
  StragglerRules rules_;
  std::uint64_t next_ = 0;
  std::map<std::tuple<std::int64_t, double, int>, std::unique_ptr<Kind>> kinds_;
  std::map<std::uint64_t, Call> calls_;  // started and not settled
  // Messages to calls that this rank has not started.
  std::map<std::uint64_t, std::vector<std::pair<int, StragglerMessage>>> early_;
  RankSet lost_ = 0;
  bool told_gone_ = false;
  RankSet suspects_ = 0;  // ranks that were late and have not been heard of since
  std::deque<Outgoing> outgoing_;
  std::deque<StragglerEvent> events_;
  StragglerCounts counts_;
  std::uint64_t dropped_ = 0;
};

}  // namespace thalweg::proto
