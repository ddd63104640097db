// Decides which host stalls when, as hosts of a cloud do that share their machines with others: at
// random moments a host, drawn at random, sends nothing for a while. What it would have sent waits.
//
// One host stalls at a time. The times from the end of one stall to the next are exponential. The
// class has no clock: after poll() has returned nothing, call it again at next().
#pragma once

#include <cstdint>
#include <optional>

#include "base/prng.h"
#include "base/units.h"

namespace thalweg::lab {

class Stalls {
 public:
  struct Change {
    Rank host;
    bool stalled = false;
    bool operator==(const Change&) const = default;
  };

  // `every`: the mean time between stalls, above 0. `length`: of each stall.
  Stalls(int hosts, Duration every, Duration length, std::uint64_t seed, Time now);

  [[nodiscard]] Time next() const { return next_; }
  // The next change that is due by `now`, in order of time; nothing if there is none.
  std::optional<Change> poll(Time now);
  // The host that stalls now; not valid if none does.
  [[nodiscard]] Rank stalled() const { return stalled_; }

 private:
  [[nodiscard]] Duration gap();

  int hosts_;
  Duration every_;
  Duration length_;
  Prng random_;
  Time next_;
  Rank stalled_;
};

}  // namespace thalweg::lab
