// Runs `thalweg bench step`: a recorded model's training step, replayed on a real network by each
// library in turn.
//
// The device's computing is emulated by sleeping, since a GPU leaves its host idle meanwhile. The
// libraries have their turns in the same processes (Gloo in a Python beside each), a few steps at a
// time, so that other load on the machine affects all of them alike.
#pragma once

#include <string>

#include <thalweg/result.h>

#include "lab/bench/step/settings.h"

namespace thalweg::lab::step {

struct Outcome {
  std::string text;   // to be printed; empty: another rank prints
  int exit_code = 0;  // 1: elements were wrong; 128 + n: signal n ended it
};

// With --testbed, brings a testbed up, runs a rank on each of its hosts and takes it down.
// Otherwise this process is the rank that the launcher's environment says. To be called before
// there are threads.
[[nodiscard]] Result<Outcome> run(const Options& options);

}  // namespace thalweg::lab::step
