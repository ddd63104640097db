// The thresholds that tune_thresholds() found, as text.
#pragma once

#include <string>

#include <thalweg/result.h>

#include "lab/tuning/thresholds.h"

namespace thalweg::lab {

// In the form that `options.format` names: a table for people, JSON, a part of a scenario, or the
// configuration of a switch. It is an error if the simulator cannot have so many queues.
[[nodiscard]] Result<std::string> thresholds_report(const TunedThresholds& tuned,
                                                    const ThresholdOptions& options);

}  // namespace thalweg::lab
