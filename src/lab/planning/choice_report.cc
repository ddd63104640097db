#include "lab/planning/choice_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "lab/console.h"
#include "lab/planning/plan_subject.h"

namespace thalweg::lab {
namespace {

constexpr std::size_t kShownRanking = 8;  // rows of the table, its head not counted

}  // namespace

std::string choice_text(const plan::Choice& choice, const topology::Topology& topology) {
  std::string text = fmt::format("{}\n  {}\n\n", choice.best.plan.scheme, choice.reason);
  std::vector<plan::EvaluatedPlan> one;
  one.push_back(choice.best);
  text += summary_table(one, topology) + "\n";
  std::vector<std::vector<std::string>> rows{{"candidates", "predicted", "of the best"}};
  for (const auto& [name, total] : choice.ranking) {
    if (rows.size() > kShownRanking) break;
    rows.push_back(
        {name, to_human(total), fmt::format("{:.2f}×", total.s() / choice.best.predicted.s())});
  }
  return text + format_table(rows);
}

std::string choice_text(const plan::SchemeChoice& choice, Duration took) {
  std::string text = fmt::format("{}\n  {}\n  chosen in {}, without making the plan\n\n",
                                 choice.scheme, choice.reason, to_human(took));
  std::vector<std::vector<std::string>> rows{{"candidates", "predicted"}};
  for (const auto& [name, total] : choice.ranking) rows.push_back({name, to_human(total)});
  return text + format_table(rows);
}

nlohmann::ordered_json choice_json(const plan::SchemeChoice& choice, Duration took) {
  nlohmann::ordered_json result{{"scheme", choice.scheme},
                                {"predicted_ms", choice.prediction.total.ms()},
                                {"steps", choice.prediction.steps},
                                {"chosen_in_ms", took.ms()},
                                {"reason", choice.reason}};
  auto& ranking = result["candidates"] = nlohmann::ordered_json::array();
  for (const auto& [name, total] : choice.ranking) {
    ranking.push_back({{"scheme", name}, {"predicted_ms", total.ms()}});
  }
  return result;
}

nlohmann::ordered_json choice_json(const plan::Choice& choice, const topology::Topology& topology) {
  nlohmann::ordered_json result = summary_json(choice.best, topology);
  result["reason"] = choice.reason;
  auto& ranking = result["candidates"] = nlohmann::ordered_json::array();
  for (const auto& [name, total] : choice.ranking) {
    ranking.push_back({{"scheme", name}, {"predicted_ms", total.ms()}});
  }
  return result;
}

std::string choice_text(const StrategyTable& table) {
  std::vector<const StrategyRow*> ranking;
  for (const StrategyRow& row : table.rows) ranking.push_back(&row);
  std::ranges::stable_sort(ranking, {}, [](const StrategyRow* row) { return row->time(); });
  std::string text = fmt::format(
      "{}\n  {}\n\n", table.verdict.best ? table.rows[*table.verdict.best].strategy : "none",
      table.verdict.reason);
  std::vector<std::vector<std::string>> rows{
      {"candidates", "an iteration", "rho/iteration", "to consensus"}};
  for (const StrategyRow* row : ranking) {
    const sync::Mixing& mixing = row->forecast.mixing;
    rows.push_back({row->strategy, to_human(row->time()),
                    fmt::format("{:.4f}", mixing.rho_per_iteration()),
                    std::to_string(mixing.iterations_to_consensus)});
  }
  return text + table.subject + "\n\n" + format_table(rows);
}

nlohmann::ordered_json choice_json(const StrategyTable& table) {
  nlohmann::ordered_json result = nlohmann::ordered_json::object();
  if (table.verdict.best) result = json_of(table.rows[*table.verdict.best], true);
  result["reason"] = table.verdict.reason;
  auto& candidates = result["candidates"] = nlohmann::ordered_json::array();
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    candidates.push_back(json_of(table.rows[r], table.verdict.best == r));
  }
  return result;
}

}  // namespace thalweg::lab
