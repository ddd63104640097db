// Measures how long two cores of this host take to pass each other a message through a cache line.
//
// The cores of a virtual machine may lie beside each other or on different dies, and may be moved
// while a benchmark runs. On different dies, whatever crosses from core to core takes several times
// as long. Measurements can be compared only if they say how far apart the cores were.
#pragma once

#include <optional>

#include "base/units.h"

namespace thalweg::lab {

// The round trip between the first two cores that this process may use: the shortest of some tries.
// Takes a few milliseconds. Returns nothing if the process may use only one core.
[[nodiscard]] std::optional<Duration> core_distance();

}  // namespace thalweg::lab
