// What came out of a scenario as JSON: the stable form that `--json` prints, that sweeps gather and
// that experiments measure. The same scenario and seed give the same text.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "sim/scenario_run.h"

namespace thalweg {

using Json = nlohmann::ordered_json;

Json to_json(const ScenarioResult& result, const Scenario& scenario);

// The number at a path such as "jobs.0.mean_iteration_ms". The error names what is there.
Result<double> measure_of(const Json& result, std::string_view path);
// The same, and nothing for what has no value because it did not finish.
Result<std::optional<double>> measure_if_any(const Json& result, std::string_view path);

}  // namespace thalweg
