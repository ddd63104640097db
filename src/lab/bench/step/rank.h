// One rank of `thalweg bench step`: it replays the steps with each library in turns.
#pragma once

#include <optional>
#include <vector>

#include <thalweg/result.h>

#include "lab/bench/step/report.h"
#include "lab/bench/step/settings.h"

namespace thalweg::lab::step {

// The steps of one turn, after which the next library has its turn.
inline constexpr int kStepsATurn = 5;

struct RankResult {
  int rank = 0;
  int ranks = 0;
  std::vector<Measured> measured;  // by library; on rank 0 only
};

// Plays all turns of all libraries, as the rank that the launcher's environment says. To be called
// before there are threads. It is an error if there is no launcher, or more ranks than hosts.
[[nodiscard]] Result<RankResult> play_as_rank(const Options& options, const Settings& settings);

}  // namespace thalweg::lab::step
