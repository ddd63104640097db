// What the tests of scenarios and experiments load: topologies by shorthand, and one small model.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "sim/scenario/scenario.h"
#include "sim/scenario/scenario_run.h"
#include "topology/format/load.h"

namespace thalweg::sim::fixture {

inline ModelTable tiny_model() {
  ModelTable table;
  table.name = "tiny";
  table.batch = 4;
  for (const char* name : {"front", "back"}) {
    table.layers.push_back({.name = name,
                            .parameters = 100'000,
                            .tensors = {100'000},
                            .forward = Duration::microseconds(100),
                            .backward = Duration::microseconds(200)});
  }
  return table;
}

inline ScenarioLoaders loaders() {
  return {
      .topology = [](const std::string& text) { return topology::topology_from_shorthand(text); },
      .model = [](const std::string& name) -> Result<ModelTable> {
        if (name == "tiny") return tiny_model();
        return Error(fmt::format("'{}' is not a model", name));
      }};
}

inline Scenario scenario_of(const std::string& text, const Settings& settings = {}) {
  Result<Scenario> scenario = scenario_from_yaml(text, "test", loaders(), settings);
  if (!scenario.ok()) ADD_FAILURE() << scenario.error().message();
  return std::move(scenario).value();
}

// Runs the scenario, and expects that it finishes (or not) and that no checker complains.
inline ScenarioResult result_of(const Scenario& scenario, bool finishes = true) {
  Result<ScenarioResult> result = run_scenario(scenario, {});
  if (!result.ok()) ADD_FAILURE() << result.error().message();
  EXPECT_EQ(result->finished, finishes);
  EXPECT_EQ(result->violations, std::vector<std::string>{});
  return std::move(result).value();
}

}  // namespace thalweg::sim::fixture
