// `thalweg plan mixing`: strategies side by side, by the time of an iteration's exchange and by how
// fast workers come to one model.
#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "cli/plan.h"
#include "cli/strategies.h"

namespace thalweg {
namespace {

struct Arguments {
  PlanArguments subject;
  StrategyArguments strategies;
  bool schedule = false;
  bool json = false;
};

nlohmann::ordered_json schedule_json(const Schedule& schedule) {
  auto period = nlohmann::ordered_json::array();
  for (const Grouping& groups : schedule.period) {
    auto& at = period.emplace_back(nlohmann::ordered_json::array());
    for (const Group& group : groups) {
      auto& members = at.emplace_back(nlohmann::ordered_json::array());
      for (const Rank worker : group) members.push_back(worker.value());
    }
  }
  return period;
}

std::string schedule_text(const Schedule& schedule) {
  std::string text;
  for (std::size_t t = 0; t < schedule.period.size(); ++t) {
    text += fmt::format("iteration {}:", t);
    for (const Group& group : schedule.period[t]) {
      text += " {";
      for (const Rank worker : group) {
        text += fmt::format("{}{}", worker == group.front() ? "" : " ", worker.value());
      }
      text += '}';
    }
    text += '\n';
  }
  return text;
}

Result<int> run(const Arguments& arguments) {
  THALWEG_TRY(const StrategyTable table,
              compare_strategies(arguments.subject, arguments.strategies));
  if (arguments.json) {
    auto json = nlohmann::ordered_json::array();
    for (std::size_t r = 0; r < table.rows.size(); ++r) {
      const StrategyRow& row = table.rows[r];
      json.push_back(json_of(row, table.verdict.best == r));
      if (arguments.schedule && row.schedule)
        json.back()["schedule"] = schedule_json(*row.schedule);
    }
    std::cout << json.dump(arguments.schedule ? -1 : 2) << '\n';
    return 0;
  }
  std::cout << table.subject << "\n\n"
            << text_of(table.rows) << '\n'
            << table.verdict.reason << '\n';
  if (!arguments.schedule) return 0;
  for (const StrategyRow& row : table.rows) {
    if (row.schedule) std::cout << '\n' << row.strategy << '\n' << schedule_text(*row.schedule);
  }
  return 0;
}

}  // namespace

void add_plan_mixing(CLI::App& plan) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& app =
      *plan.add_subcommand("mixing", "strategies side by side, and the best: time and agreement");
  arguments->subject.add_to(app);
  arguments->strategies.add_to(app);
  app.add_flag("--schedule", arguments->schedule, "print DS-Sync's groups too");
  app.add_flag("--json", arguments->json, "print a JSON array, one object a strategy");
  on_run(app, [arguments] { return run(*arguments); });
}

}  // namespace thalweg
