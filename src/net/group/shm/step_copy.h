// Copies bytes, in steps of kStep, into memory that a process on another core reads next.
//
// There are two kinds of stores. Plain stores first bring each cache line into this core's cache
// from the reader's, where it is since the ring's last lap. That is fastest between cores that
// share a cache. Between other cores a step may take many times as long (docs/collectives.md).
// Streaming stores bypass the caches: the reader then fetches the line from memory, on whichever
// core it runs.
//
// Which kind is better is unknown at first, and changes when the system moves threads or a host
// moves its virtual processors. StepCopy therefore times a plain step now and then. After a slow
// one it times a streaming step and compares the two, so that costs that both have, such as reading
// the source, do not count. After kSlowInARow plain steps in a row that took more than kSlowTimes
// as long as streaming, it streams, except for one step in kStreamedPerTimed, which is plain, to
// notice when plain steps are fast again. An interruption that takes the core away for a moment
// does not slow several steps in a row. At worst, steps are plain for a while.
#pragma once

#include <cstddef>

#include "base/units.h"
#include "net/io/system.h"

namespace thalweg::net {

class StepCopy {
 public:
  static constexpr std::size_t kStep = std::size_t{16} << 10;
  // A plain step that takes no longer than this is fast.
  static constexpr Duration kFast = Duration::microseconds(3);
  // A plain step is slow if it takes more than kSlowTimes as long as a streaming one. The factor is
  // above 1 because streaming costs the reader more.
  static constexpr int kSlowTimes = 3;
  static constexpr int kSlowInARow = 4;
  static constexpr unsigned kPlainPerTimed = 8;
  static constexpr unsigned kStreamedPerTimed = 256;

  using Clock = Time (*)();
  explicit StepCopy(Clock clock = &monotonic_now) : clock_(clock) {}

  // Copies kStep bytes.
  void copy(std::byte* to, const std::byte* from);
  [[nodiscard]] bool streams() const { return slow_ == kSlowInARow; }

 private:
  template <typename Copy>
  Duration time_of(const Copy& copy) const;

  Clock clock_;
  unsigned steps_ = 0;
  int slow_ = 0;    // slow steps in a row, up to kSlowInARow
  Duration plain_;  // time of the plain step before this one, if it was not fast
};

}  // namespace thalweg::net
