// verify(): a proof, by symbolic execution, that a plan does what its collective says.
//
// The plan is executed with sets of contributors in place of numbers. What holds for the sets holds
// for every tensor, every reduction and every timing, since versions fix what each transfer
// carries. It proves that
// 1. every rank that needs a chunk ends with every wanted contribution exactly once, and no other;
// 2. no rank deadlocks: every transfer waits only for transfers that stand before it in the plan;
// 3. no transfer carries an empty buffer, and none copies what its target holds already.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace thalweg::plan {

struct PlanProof {
  // The longest chain of transfers in which each waits for the one before.
  int steps = 0;
  // Per transfer: its place on the longest chain that leads to it, counted from 1.
  std::vector<int> step_of;
  // How much each rank may have to hold beside its tensor in the worst timing: values that arrived
  // before it was their turn to be applied.
  std::vector<Bytes> staging;
  [[nodiscard]] Bytes peak_staging() const;
};

// An error says which rank and which chunk, and what is missing, doubled, foreign or stuck.
Result<PlanProof> verify(const Plan& plan);

}  // namespace thalweg::plan
