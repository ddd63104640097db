#include "lab/testbed/stalls.h"

#include <cmath>

namespace thalweg::lab {

Stalls::Stalls(int hosts, Duration every, Duration length, std::uint64_t seed, Time now)
    : hosts_(hosts), every_(every), length_(length), random_(seed), next_(now) {
  next_ += gap();
}

Duration Stalls::gap() { return Duration::seconds(-std::log1p(-random_.real()) * every_.s()); }

std::optional<Stalls::Change> Stalls::poll(Time now) {
  if (now < next_) return std::nullopt;
  if (stalled_.valid()) {
    const Change change{.host = stalled_, .stalled = false};
    stalled_ = Rank();
    next_ += gap();
    return change;
  }
  stalled_ = Rank(static_cast<std::int32_t>(random_.below(static_cast<std::uint64_t>(hosts_))));
  next_ += length_;
  return Change{.host = stalled_, .stalled = true};
}

}  // namespace thalweg::lab
