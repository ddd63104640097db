// `thalweg plan best`: the planner's choice, and why: of schemes, or of strategies.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <memory>

#include "cli/plan.h"
#include "cli/plan_arguments.h"
#include "cli/strategies.h"

namespace thalweg {
namespace {

constexpr std::size_t kShownRanking = 8;
// Of PlanArguments: what strategies take, too.
constexpr std::array kShared{"--help",          "--topology", "--size",
                             "--element-bytes", "--alpha",    "--follow-up"};

struct Arguments {
  PlanArguments subject;
  PlanOutputs outputs;
  StrategyArguments strategies;
  bool of_strategies = false;
  bool json = false;
};

void print(const Choice& choice, const Topology& topology) {
  std::cout << fmt::format("{}\n  {}\n\n", choice.best.plan.scheme, choice.reason);
  std::vector<EvaluatedPlan> one;
  one.push_back(choice.best);
  std::cout << summary_table(one, topology) << '\n';
  std::vector<std::vector<std::string>> rows{{"candidates", "predicted", "of the best"}};
  for (const auto& [name, total] : choice.ranking) {
    if (rows.size() > kShownRanking) break;
    rows.push_back(
        {name, to_human(total), fmt::format("{:.2f}×", total.s() / choice.best.cost.total.s())});
  }
  std::cout << format_table(rows);
}

void print_json(const Choice& choice, const Topology& topology) {
  nlohmann::ordered_json result = summary_json(choice.best, topology);
  result["reason"] = choice.reason;
  auto& ranking = result["candidates"] = nlohmann::ordered_json::array();
  for (const auto& [name, total] : choice.ranking) {
    ranking.push_back({{"scheme", name}, {"predicted_ms", total.ms()}});
  }
  std::cout << result.dump(2) << '\n';
}

// Quickest first; the best may stand below others that something speaks against.
void print(const StrategyTable& table) {
  std::vector<const StrategyRow*> ranking;
  for (const StrategyRow& row : table.rows) ranking.push_back(&row);
  std::ranges::stable_sort(ranking, {}, [](const StrategyRow* row) { return row->time(); });
  std::cout << fmt::format("{}\n  {}\n\n",
                           table.verdict.best ? table.rows[*table.verdict.best].strategy : "none",
                           table.verdict.reason);
  std::vector<std::vector<std::string>> rows{
      {"candidates", "an iteration", "rho/iteration", "to consensus"}};
  for (const StrategyRow* row : ranking) {
    const Mixing& mixing = row->forecast.mixing;
    rows.push_back({row->strategy, to_human(row->time()),
                    fmt::format("{:.4f}", mixing.rho_per_iteration()),
                    std::to_string(mixing.iterations_to_consensus)});
  }
  std::cout << table.subject << "\n\n" << format_table(rows);
}

void print_json(const StrategyTable& table) {
  nlohmann::ordered_json result = nlohmann::ordered_json::object();
  if (table.verdict.best) result = json_of(table.rows[*table.verdict.best], true);
  result["reason"] = table.verdict.reason;
  auto& candidates = result["candidates"] = nlohmann::ordered_json::array();
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    candidates.push_back(json_of(table.rows[r], table.verdict.best == r));
  }
  std::cout << result.dump(2) << '\n';
}

Result<int> run_of_strategies(const Arguments& arguments) {
  THALWEG_TRY(const StrategyTable table,
              compare_strategies(arguments.subject, arguments.strategies));
  arguments.json ? print_json(table) : print(table);
  return 0;
}

Result<int> run(const Arguments& arguments) {
  if (arguments.of_strategies) return run_of_strategies(arguments);
  if (arguments.subject.size.empty()) return Error("--size is required, or --strategies");
  THALWEG_TRY(const auto subject, PlanSubject::from(arguments.subject));
  subject->options.cost.timeline = arguments.outputs.wants_timeline();
  Choice choice;
  {
    Progress progress;
    subject->options.progress = [&](const std::string& scheme) { progress.show(scheme); };
    THALWEG_TRY(choice, best_plan(subject->request, subject->routing, subject->options));
  }
  THALWEG_TRY_STATUS(arguments.outputs.write(choice.best, subject->topology));
  arguments.json ? print_json(choice, subject->topology) : print(choice, subject->topology);
  return 0;
}

}  // namespace

void add_plan_best(CLI::App& plan) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& app =
      *plan.add_subcommand("best", "the fastest scheme and chunking, or strategy, and why");
  arguments->subject.add_to(app);
  arguments->outputs.add_to(app);
  const std::vector<CLI::Option*> of_schemes = app.get_options([](const CLI::Option* option) {
    return !std::ranges::any_of(kShared,
                                [&](const char* name) { return option->check_name(name); });
  });
  CLI::Option* const of_strategies =
      app.add_flag("--strategies", arguments->of_strategies,
                   "choose among strategies of synchronization, as `plan mixing` compares them");
  for (CLI::Option* const option : of_schemes) option->excludes(of_strategies);
  for (CLI::Option* const option : arguments->strategies.add_to(app)) {
    option->needs(of_strategies);
  }
  app.get_option("--size")->description(
      "size of the tensor, with a unit: 97MB, 64KiB; with --strategies of what is exchanged, 100MB "
      "or the --model's if not given");
  app.add_flag("--json", arguments->json, "print a JSON object");
  on_run(app, [arguments] { return run(*arguments); });
}

}  // namespace thalweg
