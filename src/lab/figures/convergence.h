// Real training beside simulations: how well and how soon a small neural network learns with the
// strategies of an experiment's points, at the speeds that the simulator found.
#pragma once

#include "lab/sweep/sim_sweep.h"
#include "sim/scenario/experiment.h"

namespace thalweg::lab {

// Trains, and adds "training" (python/thalweg/lab/train_strategies.py says what is in it) to the
// results of the points that finished. Adds nothing if the base, with which the others are
// compared, did not finish.
Status join_training(const sim::ExperimentTraining& training, bool quick, const Sweep& sweep,
                     sim::ExperimentResult& result);

}  // namespace thalweg::lab
