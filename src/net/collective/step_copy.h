// Copies into memory that a process on another core reads next, in steps.
//
// Two ways of storing. Plain stores need each line in this core's cache first, from the reader's,
// where it is from the last lap. Between cores that share a cache that is the fastest; between
// others a step may take many times as long (docs/collectives.md). Streaming stores leave the line
// to no cache: the reader fetches it from memory, wherever it runs.
//
// Which is better is not known and changes, where a system moves its threads or a host its virtual
// processors. So plain steps are timed, now and then. One that is slow is followed by a timed one
// that streams: so what both have in common, as memory that the bytes come from, does not count.
// After several in a row that took many times as long as streaming, steps are streamed, except for
// one in many, to see whether plain ones are fast again. Whatever takes a core away for a moment
// makes no row; at worst, steps are plain for a while.
#pragma once

#include <cstddef>

#include "base/units.h"
#include "net/system.h"

namespace thalweg {

class StepCopy {
 public:
  static constexpr std::size_t kStep = std::size_t{16} << 10;
  // A plain step that takes no longer is fast.
  static constexpr Duration kFast = Duration::microseconds(3);
  // A plain step that takes so many times as long as one that streams is slow. What streams costs
  // the reader more.
  static constexpr int kSlowTimes = 3;
  static constexpr int kSlowInARow = 4;
  static constexpr unsigned kPlainPerTimed = 8;
  static constexpr unsigned kStreamedPerTimed = 256;

  using Clock = Time (*)();
  explicit StepCopy(Clock clock = &monotonic_now) : clock_(clock) {}

  // kStep bytes.
  void copy(std::byte* to, const std::byte* from);
  [[nodiscard]] bool streams() const { return slow_ == kSlowInARow; }

 private:
  template <typename Copy>
  Duration time_of(const Copy& copy) const;

  Clock clock_;
  unsigned steps_ = 0;
  int slow_ = 0;    // slow steps in a row, up to kSlowInARow
  Duration plain_;  // of the step before, if it took long
};

}  // namespace thalweg
