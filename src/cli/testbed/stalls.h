// Hosts that stall, as those of a cloud do whose machines others use too: at random moments one of
// them, drawn at random, sends nothing for a while. What it would have sent waits.
//
// One host at a time; between the end of a stall and the next one are exponential times. No clock:
// after poll() has given nothing more, it is to be asked again at next().
#pragma once

#include <cstdint>
#include <optional>

#include "base/prng.h"
#include "base/units.h"

namespace thalweg {

class Stalls {
 public:
  struct Change {
    Rank host;
    bool stalled = false;
    bool operator==(const Change&) const = default;
  };

  // `every`: the mean time between stalls, above 0. `length`: of each.
  Stalls(int hosts, Duration every, Duration length, std::uint64_t seed, Time now);

  [[nodiscard]] Time next() const { return next_; }
  // What is due by now, one change a call, in the order of time.
  std::optional<Change> poll(Time now);
  // The host that stalls now; invalid if none does.
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

}  // namespace thalweg
