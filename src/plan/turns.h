// The rule by which plans run, in one place for all that run them: the executor of segments
// (exec/progress.h), the simulator and the cost model (plan/progress.h).
//
//   Arrival k of a buffer is applied when it has come and arrival k − 1 was applied. That makes
//   version k + 1, and what carries that version may be sent.
//
// The rule holds for a buffer as a whole, or for each of its segments by itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace thalweg::plan {

// Applies the arrivals whose turn it is. `arrivals`: those of the buffer, in the order of their
// application; `version` of them were applied, and it counts on. Calls has_come(arrival) to learn
// whether it can go on, and after each arrival applied(arrival, version).
template <class HasCome, class Applied>
void take_turns(std::span<const std::uint32_t> arrivals, std::uint32_t& version, HasCome has_come,
                Applied applied) {
  while (version < arrivals.size() && has_come(arrivals[version])) {
    const std::uint32_t arrival = arrivals[version];
    applied(arrival, ++version);
  }
}

}  // namespace thalweg::plan
