// Strategies side by side, as `thalweg plan mixing` and `thalweg plan best --strategies` show them:
// the time of an iteration's exchange, and how fast workers come to one model.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/plan_arguments.h"
#include "sim/model.h"
#include "sync/forecast.h"

namespace thalweg {

// As typed, beside PlanArguments.
struct StrategyArguments {
  std::vector<std::string> strategies;
  std::vector<std::string> slow;
  double slow_factor = 2;
  std::optional<int> seed = {};
  std::string model;
  int agree_within = kAgreeWithin;
  bool in_switch = false;

  // The options that were added. --size is no longer required.
  std::vector<CLI::Option*> add_to(CLI::App& app);
};

struct StrategyRow {
  std::string strategy;
  Forecast forecast;
  std::optional<Duration> by_table;
  std::optional<Duration> iteration;  // with a model
  std::optional<ServerUse> servers;
  std::optional<Schedule> schedule;

  // With computing, where that is known.
  [[nodiscard]] Duration time() const { return iteration.value_or(forecast.mean()); }
};

struct StrategyTable {
  std::string subject;  // what is exchanged, on what, by how many, in words
  std::vector<StrategyRow> rows;
  Verdict verdict;
};

// The strategies named, or the paper's (and, where switches sum, those with it).
Result<StrategyTable> compare_strategies(PlanArguments subject, const StrategyArguments& arguments);

nlohmann::ordered_json json_of(const StrategyRow& row, bool best);
// For people: one row a strategy, and what the columns mean.
std::string text_of(const std::vector<StrategyRow>& rows);

}  // namespace thalweg
