// How fast workers that average in some pattern reach one model.
//
// rho is the second-largest eigenvalue, by modulus, of the product of one period's averaging
// matrices: in the long run a disagreement shrinks by the factor rho per period (DS-Sync, section
// IV-B2).
#pragma once

#include "sync/schedule.h"

namespace thalweg::sync {

struct Mixing {
  int period = 1;  // iterations
  double rho = 0;  // per period; 0: nothing is left after one period (or a few)
  // Iterations, from iteration 0 on, until a random disagreement has shrunk to the fraction
  // kConsensus of itself (root mean square); 0: more than kMaxConsensusIterations.
  int iterations_to_consensus = 1;
  // The factor of one iteration that corresponds to rho, to compare patterns of different periods.
  [[nodiscard]] double rho_per_iteration() const;
};
inline constexpr double kConsensus = 0.01;
inline constexpr int kMaxConsensusIterations = 1'000'000;

// Requires a schedule that has passed check_schedule().
Mixing mixing_of(const Schedule& schedule);
// Gossip on the dynamic exponential graph (plan/schemes/gossip.cc).
Mixing mixing_of_gossip(int workers);
// The number of iterations after which the gossip graph repeats.
int gossip_period(int workers);
// All workers average with all: BSP.
inline Mixing mixing_of_all() { return {}; }

}  // namespace thalweg::sync
