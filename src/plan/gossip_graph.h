// The dynamic exponential graph of gossip (Assran et al., "Stochastic Gradient Push", 2019).
#pragma once

#include <bit>

namespace thalweg::plan {

// The number of distances, ⌈log2 w⌉, of which each iteration uses one in turn; 0 for a single rank,
// which has no other to send to.
inline int gossip_distances(int ranks) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(ranks - 1)));
}

}  // namespace thalweg::plan
