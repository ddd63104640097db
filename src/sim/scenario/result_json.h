// The result of a scenario as JSON: the stable form that `--json` prints, that sweeps collect and
// that experiments read. The same scenario and seed give the same text.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "sim/scenario/scenario_run.h"

namespace thalweg::sim {

using Json = nlohmann::ordered_json;

Json to_json(const ScenarioResult& result, const Scenario& scenario);

// The number at a path such as "jobs.0.mean_iteration_ms". An error names the keys that exist
// there.
Result<double> measure_of(const Json& result, std::string_view path);
// The same, but empty if there is no value because the work did not finish.
Result<std::optional<double>> measure_if_any(const Json& result, std::string_view path);

}  // namespace thalweg::sim
