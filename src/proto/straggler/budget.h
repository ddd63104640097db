// What an allreduce with a straggler bound may leave out, and how long it usually takes.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "base/units.h"

namespace thalweg::proto {

// Keeps what is left out of any `window` consecutive calls of one kind to `bound` of their
// contributions. The calls have numbers from 0 and the same size.
class StragglerBudget {
 public:
  // `whole`: the contributions to one call, in any unit.
  StragglerBudget(double bound, int window, std::int64_t whole)
      : most_(bound * window * static_cast<double>(whole)),
        window_(static_cast<std::uint64_t>(window)) {}

  // Whether every window keeps the bound if the call leaves out so much more.
  [[nodiscard]] bool may_leave(std::uint64_t call, std::int64_t amount) const;
  // Requires that no call far ahead (2 windows) has left anything out.
  void leave(std::uint64_t call, std::int64_t amount);

 private:
  double most_;
  std::uint64_t window_;
  std::deque<std::pair<std::uint64_t, std::int64_t>> left_;  // by call, ascending
};

// The median time of the last calls.
class StragglerPace {
 public:
  void learn(Duration time);
  // None: too few calls so far.
  [[nodiscard]] std::optional<Duration> usual() const;

 private:
  std::deque<Duration> last_;
};

}  // namespace thalweg::proto
