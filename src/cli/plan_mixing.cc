// `thalweg plan mixing`: strategies side by side, with the time of an iteration's exchange and how
// fast the workers' models agree.
#include <fmt/core.h>

#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/commands.h"
#include "cli/plan_arguments.h"
#include "lab/planning/strategies.h"

namespace thalweg::cli {
namespace {

struct PlanMixingArguments {
  lab::PlanArguments subject;
  lab::StrategyArguments strategies;
  bool schedule = false;
  bool json = false;
};

nlohmann::ordered_json schedule_json(const sync::Schedule& schedule) {
  auto period = nlohmann::ordered_json::array();
  for (const sync::Grouping& groups : schedule.period) {
    auto& at = period.emplace_back(nlohmann::ordered_json::array());
    for (const sync::Group& group : groups) {
      auto& members = at.emplace_back(nlohmann::ordered_json::array());
      for (const Rank worker : group) members.push_back(worker.value());
    }
  }
  return period;
}

std::string schedule_text(const sync::Schedule& schedule) {
  std::string text;
  for (std::size_t t = 0; t < schedule.period.size(); ++t) {
    text += fmt::format("iteration {}:", t);
    for (const sync::Group& group : schedule.period[t]) {
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

Result<int> run_plan_mixing(const PlanMixingArguments& arguments) {
  THALWEG_TRY(const lab::StrategyTable table,
              lab::compare_strategies(arguments.subject, arguments.strategies));
  if (arguments.json) {
    auto rows = nlohmann::ordered_json::array();
    for (std::size_t r = 0; r < table.rows.size(); ++r) {
      const lab::StrategyRow& row = table.rows[r];
      rows.push_back(lab::json_of(row, table.verdict.best == r));
      if (arguments.schedule && row.schedule)
        rows.back()["schedule"] = schedule_json(*row.schedule);
    }
    std::cout << rows.dump(arguments.schedule ? -1 : 2) << '\n';
    return 0;
  }
  std::cout << table.subject << "\n\n"
            << lab::text_of(table.rows) << '\n'
            << table.verdict.reason << '\n';
  if (!arguments.schedule) return 0;
  for (const lab::StrategyRow& row : table.rows) {
    if (row.schedule) std::cout << '\n' << row.strategy << '\n' << schedule_text(*row.schedule);
  }
  return 0;
}

}  // namespace

void add_plan_mixing(CLI::App& plan) {
  auto arguments = std::make_shared<PlanMixingArguments>();
  CLI::App& app =
      *plan.add_subcommand("mixing", "strategies side by side, and the best: time and agreement");
  add_plan_options(app, arguments->subject);
  add_strategy_options(app, arguments->strategies);
  app.add_flag("--schedule", arguments->schedule, "print DS-Sync's groups too");
  app.add_flag("--json", arguments->json, "print a JSON array, one object a strategy");
  add_examples(app, {"thalweg plan mixing --topology two-racks --model resnet50"});
  on_run(app, [arguments] { return run_plan_mixing(*arguments); });
}

}  // namespace thalweg::cli
