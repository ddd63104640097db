// AutoChoice: finds the fastest of a few candidates for one kind of call, by trials among the
// caller's own calls, without I/O. One object is one rank's end. All ranks deal the same candidate
// to the same call, because a deal depends only on the number of calls so far and on reports that
// all ranks have combined.
//
// Cycles. The calls of a kind are numbered from 0 and come in cycles. In a cycle of trials each
// live candidate gets a block of calls. The calls after that run by the best candidate so far,
// while the ranks combine what they measured: with the first call after a gap of one block, each
// rank gives its times to an allreduce by maximum, and one block later all ranks wait for it. So
// the slowest rank's time counts, and no rank waits if the combination takes less than a block of
// calls. A call that is not over on some rank when that rank reports counts on no rank.
//
// Blocks. A block has as many calls as were in flight together, so that the calls of a training
// step are tried by the same candidate: calls of different candidates that overlap delay each
// other.
//
// Rounds. The first cycle is cold: it makes connections and plans, so its times only remove what is
// hopeless. The candidates that are much slower than the best leave after each cycle, by a limit
// that narrows with the number of trials, and so do the slowest if the trials cost more than the
// budget. After the last round the one with the lowest mean is chosen. The one in use so far stays
// unless another is better by more than Rules::keep.
//
// Drift. After the decision, cycles are windows of calls by the chosen candidate. If the mean of a
// window differs too much from the mean of its trials, wants_trials() says so, and try_again()
// begins them. After every such time windows are twice as long, up to a limit.
//
// Invariants:
// 1. If all ranks make the same calls and are given the same combined reports, deal() returns the
//    same on all ranks for each call.
// 2. report() has kAutoFields values, and combining means the maximum of each over all ranks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"

namespace thalweg::proto {

inline constexpr std::size_t kAutoMostCandidates = 8;
// The calls in flight; then for each candidate its mean time in ms, and whether a call is not over.
inline constexpr std::size_t kAutoFields = 1 + 2 * kAutoMostCandidates;
using AutoReport = std::array<double, kAutoFields>;

struct AutoRules {
  int rounds = 5;        // trials of a candidate that is never much slower than the best
  int most_cycles = 12;  // of trials, including those in which nothing was measured
  std::uint64_t most_block = 8;
  // The most that trials may cost beyond what the best candidate would have taken, in blocks of the
  // best one's calls: 3 % of 200 steps. Trials that nothing was known about before may exceed it.
  double budget = 6;
  std::uint64_t window = 50;  // calls between two looks at the times
  std::uint64_t most_window = 1600;
  double drift = 1.5;  // trials begin again if the mean is this many times larger or smaller
  double keep = 0.02;  // the part by which another must be better than the one in use
};

class AutoChoice {
 public:
  // The first candidate is in use until trials show a better one. Requires 1 to
  // kAutoMostCandidates.
  explicit AutoChoice(std::size_t candidates, const AutoRules& rules = {});

  // For each call, in this order: if awaits_report(), wait for the combined report and pass it to
  // on_combined(); if reports(), combine report() with those of the other ranks; then deal().
  [[nodiscard]] bool awaits_report() const { return pending_ && next_ >= cycle_.await_at; }
  void on_combined(std::span<const double> combined);
  [[nodiscard]] bool reports() const {
    return candidates_.size() > 1 && !pending_ && next_ >= cycle_.report_at;
  }
  [[nodiscard]] AutoReport report();
  struct Deal {
    std::uint64_t call = 0;     // its number
    std::size_t candidate = 0;  // what runs it
  };
  [[nodiscard]] Deal deal();
  // What the call cost on this rank. Costs are compared by their sums, so it does not matter which
  // of several calls that overlap a time is added to.
  void on_time(std::uint64_t call, Duration time);
  // A call is over on this rank.
  void on_over() { ++over_; }
  // Times have changed since the decision. Ask between on_combined() and deal().
  [[nodiscard]] bool wants_trials() const { return drifted_; }
  void try_again();

  // What is known.
  [[nodiscard]] bool decided() const { return decided_; }
  // In use now: the chosen one, or the best so far.
  [[nodiscard]] std::size_t chosen() const { return best_; }
  // The mean of a candidate's trials; none: it has none that count.
  [[nodiscard]] std::optional<double> mean_ms(std::size_t candidate) const;
  // The candidate left the trials before the last round.
  [[nodiscard]] bool dropped(std::size_t candidate) const { return !candidates_[candidate].live; }
  [[nodiscard]] std::uint64_t calls() const { return next_; }
  // Over all trials: their number, their time, and how much longer they took than the best would.
  [[nodiscard]] std::uint64_t trials() const { return trials_; }
  [[nodiscard]] double trials_ms() const { return trials_ms_; }
  [[nodiscard]] double extra_ms() const { return extra_ms_; }
  [[nodiscard]] int decisions() const { return decisions_; }

 private:
  struct Candidate {
    bool live = true;
    double sum_ms = 0;  // of the mean times of `count` blocks
    int count = 0;
    // On this rank, in this cycle.
    double own_ms = 0;
    std::uint64_t own_calls = 0;
    [[nodiscard]] double mean() const { return sum_ms / count; }
  };
  struct Cycle {
    bool trial = true;
    bool cold = false;
    std::uint64_t first = 0;         // of the calls that are measured
    std::uint64_t calls = 0;         // that are measured
    std::uint64_t block = 1;         // of them, of one candidate
    std::vector<std::size_t> order;  // the candidates of the blocks
    std::uint64_t report_at = 0;
    std::uint64_t await_at = 0;
  };
  struct Sample {
    std::size_t candidate;
    double ms;
  };

  // The candidate whose time in this cycle the call measures; none: it measures nothing.
  [[nodiscard]] std::optional<std::size_t> measured_by(std::uint64_t call) const;
  void begin_cycle(bool cold);
  void begin_window();
  void take_trials(const std::vector<Sample>& samples);
  void take_window(double mean_ms);
  void drop_slow(double best_ms);
  void drop_costly(double best_ms);
  [[nodiscard]] std::size_t live_count() const;
  [[nodiscard]] std::optional<std::size_t> fastest() const;
  void decide();

  AutoRules rules_;
  std::vector<Candidate> candidates_;
  Cycle cycle_;
  bool pending_ = false;  // a report was given, and its combination is not known
  bool decided_ = false;
  bool drifted_ = false;
  std::size_t best_ = 0;
  std::size_t incumbent_ = 0;  // in use before these trials
  double reference_ms_ = 0;    // the mean of the trials of the chosen one; 0: not known
  std::uint64_t window_;
  std::uint64_t next_ = 0;  // the number of the next call
  int cycles_ = 0;          // of these trials
  double spent_ = 0;        // by these trials beyond the best, in ms
  std::uint64_t block_ = 1;
  std::uint64_t over_ = 0;
  std::uint64_t depth_ = 0;  // the most calls in flight since the last report
  std::uint64_t trials_ = 0;
  double trials_ms_ = 0;
  double extra_ms_ = 0;
  int decisions_ = 0;
};

}  // namespace thalweg::proto
