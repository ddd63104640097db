// How fast workers that average by a pattern come to one model.
//
// rho is the second-largest eigenvalue, by modulus, of the product of one period's averaging
// matrices: what is left of a disagreement shrinks by rho a period in the long run (DS-Sync,
// section IV-B2).
#pragma once

#include "sync/schedule.h"

namespace thalweg {

struct Mixing {
  int period = 1;  // iterations
  double rho = 0;  // a period; 0: after one period (or a few) nothing is left
  // Until a random disagreement has shrunk to kConsensus of itself (root mean square), from
  // iteration 0 on; 0: not within kMaxConsensusIterations.
  int iterations_to_consensus = 1;
  // rho as the shrinking of one iteration, to compare patterns of different periods.
  [[nodiscard]] double rho_per_iteration() const;
};
inline constexpr double kConsensus = 0.01;
inline constexpr int kMaxConsensusIterations = 1'000'000;

// Requires a schedule that check_schedule() has passed.
Mixing mixing_of(const Schedule& schedule);
// Gossip on the dynamic exponential graph (plan/schemes/gossip.cc).
Mixing mixing_of_gossip(int workers);
// Iterations after which its graph is the same again.
int gossip_period(int workers);
// All average with all: BSP.
inline Mixing mixing_of_all() { return {}; }

}  // namespace thalweg
