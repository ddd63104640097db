// Copies into memory that a process on another core reads next, in steps.
//
// Two ways of storing. Plain stores need each line in this core's cache first, from the reader's,
// where it is from the last lap. Between cores that share a cache that is the fastest; between
// others one step may take ten times as long (docs/collectives.md). Streaming stores leave the line
// to no cache: the reader fetches it from memory, wherever it runs.
//
// Which is better is not known and changes, where a system moves its threads or a host its virtual
// processors. So plain steps are timed, now and then: after several slow ones in a row steps are
// streamed, except for one in many, to see whether plain ones are fast again. Whatever else takes a
// core away for a moment makes no row.
#pragma once

#include <cstddef>

#include "base/units.h"

namespace thalweg {

class StepCopy {
 public:
  static constexpr std::size_t kStep = std::size_t{16} << 10;
  // A step that takes longer is slow: 5 GB/s. Within caches it takes a third.
  static constexpr Duration kSlow = Duration::microseconds(3);
  static constexpr unsigned kPlainPerTimed = 8;
  static constexpr unsigned kStreamedPerTimed = 256;
  static constexpr int kSlowInARow = 4;

  // kStep bytes.
  void copy(std::byte* to, const std::byte* from);

  [[nodiscard]] bool streams() const { return slow_ == kSlowInARow; }
  // The next step is plain, and timed.
  [[nodiscard]] bool is_timed() const {
    return steps_ % (streams() ? kStreamedPerTimed : kPlainPerTimed) == 0;
  }
  // It took so long.
  void took(Duration time);

 private:
  unsigned steps_ = 0;
  int slow_ = 0;  // timed steps since the last fast one, up to kSlowInARow
};

}  // namespace thalweg
