// The time that the simulator predicts for a step that `thalweg bench step` measures.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <thalweg/result.h>

#include "base/units.h"
#include "lab/bench/step/libraries.h"
#include "lab/bench/step/settings.h"

namespace thalweg::lab::step {

struct ForecastOptions {
  std::int64_t seed = 1;
  int steps = 40;                           // at most; fewer where they would take long
  std::vector<std::string> aggregate = {};  // the switches that sum, for ATP
};

// The scenario of the steps, as text. None: the simulator has no such world. It has no order of
// buckets over TCP without the layerwise schedule, no layerwise schedule without such an order, and
// always seven queues. `settings` must have a topology.
[[nodiscard]] std::optional<std::string> scenario_text(const Settings& settings,
                                                       const Library& library,
                                                       const ForecastOptions& options);

// The median time of a step; none as above, or if two steps take longer than an hour. Processors
// and kernels take no time.
[[nodiscard]] Result<std::optional<Duration>> forecast(const Settings& settings,
                                                       const Library& library,
                                                       const ForecastOptions& options);

}  // namespace thalweg::lab::step
