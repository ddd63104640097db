// Real training beside simulations: how well and how soon a small network learns by the strategies
// of an experiment's points, at the speeds that the simulator found.
#pragma once

#include "cli/sim_sweep.h"
#include "sim/experiment.h"

namespace thalweg {

// Adds `training` (python/thalweg/convergence.py says what is in it) to the results of those points
// that finished. Nothing is added where the base did not.
Status join_training(const ExperimentTraining& training, bool quick, const Sweep& sweep,
                     ExperimentResult& result);

}  // namespace thalweg
