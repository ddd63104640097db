// Compares strategies of synchronization for `thalweg plan mixing` and `thalweg plan best
// --strategies`: the time of an iteration's exchange, and how fast the workers' models agree.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lab/planning/plan_subject.h"
#include "sim/workload/model.h"
#include "sync/forecast.h"

namespace thalweg::lab {

// What to compare beside PlanArguments, as the user typed it. src/cli/plan_arguments.cc says what
// each option means.
struct StrategyArguments {
  std::vector<std::string> strategies;
  std::vector<std::string> slow;
  double slow_factor = 2;
  std::optional<int> seed = {};
  std::string model;
  int agree_within = sync::kAgreeWithin;
  bool in_switch = false;
};

// One strategy.
struct StrategyRow {
  std::string strategy;
  sync::Forecast forecast;
  std::optional<Duration> by_table;  // the exchange by the paper's table II, if it has the strategy
  std::optional<Duration> iteration;       // computing and exchange, if there is a model
  std::optional<sync::ServerUse> servers;  // of strategies with parameter servers
  std::optional<sync::Schedule> schedule;  // of DS-Sync and local SGD

  // The time of an iteration with computing, or of its exchange if there is no model.
  [[nodiscard]] Duration time() const { return iteration.value_or(forecast.mean()); }
};

struct StrategyTable {
  std::string subject;  // in words: what is exchanged, on which network, by how many workers
  std::vector<StrategyRow> rows;
  sync::Verdict verdict;
};

// Compares the strategies that the arguments name, or else the paper's. With `in_switch`,
// strategies in which switches sum are added to the latter.
Result<StrategyTable> compare_strategies(PlanArguments subject, const StrategyArguments& arguments);

// `best`: whether this is the best row.
nlohmann::ordered_json json_of(const StrategyRow& row, bool best);
// For people: a table with one row per strategy, and what the columns mean.
std::string text_of(const std::vector<StrategyRow>& rows);

}  // namespace thalweg::lab
