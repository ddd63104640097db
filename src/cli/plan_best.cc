// `thalweg plan best`: the planner's choice, and why.
#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "cli/plan.h"
#include "cli/plan_arguments.h"

namespace thalweg {
namespace {

constexpr std::size_t kShownRanking = 8;

struct Arguments {
  PlanArguments subject;
  PlanOutputs outputs;
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

Result<int> run(const Arguments& arguments) {
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
  CLI::App& app = *plan.add_subcommand("best", "the fastest scheme and chunking, and why");
  arguments->subject.add_to(app);
  arguments->outputs.add_to(app);
  app.add_flag("--json", arguments->json, "print a JSON object");
  on_run(app, [arguments] { return run(*arguments); });
}

}  // namespace thalweg
