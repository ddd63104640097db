// How long two cores of this host take to tell each other something, through a cache line.
//
// A virtual machine's cores may lie beside each other or on different dies, and may be moved from
// the one to the other while a benchmark runs; whatever crosses from core to core then takes
// several times as long. A measurement that says how far apart they were can be compared.
#pragma once

#include <optional>

#include "base/units.h"

namespace thalweg {

// There and back between the first two cores that this process may use, the shortest of some
// tries; a few milliseconds. None: it may use one only.
[[nodiscard]] std::optional<Duration> core_distance();

}  // namespace thalweg
