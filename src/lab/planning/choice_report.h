// The best scheme or strategy and the candidates beside it, as `thalweg plan best` prints them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lab/planning/strategies.h"
#include "plan/planner.h"
#include "topology/topology.h"

namespace thalweg::lab {

// The planner's choice among schemes.
[[nodiscard]] nlohmann::ordered_json choice_json(const plan::Choice& choice,
                                                 const topology::Topology& topology);
[[nodiscard]] std::string choice_text(const plan::Choice& choice,
                                      const topology::Topology& topology);

// The choice alone, with the time that it took.
[[nodiscard]] nlohmann::ordered_json choice_json(const plan::SchemeChoice& choice, Duration took);
[[nodiscard]] std::string choice_text(const plan::SchemeChoice& choice, Duration took);

// The choice among strategies. The text lists the quickest first; the best may stand below others
// that have a drawback.
[[nodiscard]] nlohmann::ordered_json choice_json(const StrategyTable& table);
[[nodiscard]] std::string choice_text(const StrategyTable& table);

}  // namespace thalweg::lab
