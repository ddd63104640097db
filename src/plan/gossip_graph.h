// The dynamic exponential graph of gossip (Assran et al., "Stochastic Gradient Push", 2019).
#pragma once

#include <bit>

namespace thalweg {

// ⌈log2 w⌉ distances, one an iteration, in turn; 0 for a rank alone, which has nobody to send to.
inline int gossip_distances(int ranks) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(ranks - 1)));
}

}  // namespace thalweg
