// `thalweg plan best`: the best scheme, or the best strategy, and why.
#include <algorithm>
#include <array>
#include <chrono>
#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/commands.h"
#include "cli/plan_arguments.h"
#include "lab/planning/choice_report.h"
#include "lab/planning/strategies.h"
#include "lab/terminal.h"

namespace thalweg::cli {
namespace {

// Options of schemes that --strategies takes, too.
constexpr std::array kShared{"--help",          "--topology", "--size",
                             "--element-bytes", "--alpha",    "--follow-up"};

struct PlanBestArguments {
  lab::PlanArguments subject;
  lab::PlanOutputs outputs;
  lab::StrategyArguments strategies;
  bool of_strategies = false;
  bool time = false;
  bool json = false;
};

Result<int> run_of_strategies(const PlanBestArguments& arguments) {
  THALWEG_TRY(const lab::StrategyTable table,
              lab::compare_strategies(arguments.subject, arguments.strategies));
  std::cout << (arguments.json ? lab::choice_json(table).dump(2) + "\n" : lab::choice_text(table));
  return 0;
}

// Only chooses, which is what every communicator with a topology does.
Result<int> run_choice(const lab::PlanSubject& subject, bool as_json) {
  const auto start = std::chrono::steady_clock::now();
  THALWEG_TRY(const plan::SchemeChoice choice,
              plan::choose_scheme(subject.request, subject.routing, subject.options));
  const Duration took = Duration::seconds(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  std::cout << (as_json ? lab::choice_json(choice, took).dump(2) + "\n"
                        : lab::choice_text(choice, took));
  return 0;
}

Result<int> run_plan_best(const PlanBestArguments& arguments) {
  if (arguments.of_strategies) return run_of_strategies(arguments);
  if (arguments.subject.size.empty()) return Error("--size is required, or --strategies");
  THALWEG_TRY(const auto subject, lab::PlanSubject::from(arguments.subject));
  if (arguments.time) return run_choice(*subject, arguments.json);
  subject->options.cost.timeline = arguments.outputs.wants_timeline();
  plan::Choice choice;
  {
    lab::Progress progress;
    subject->options.progress = [&](const std::string& scheme) { progress.show(scheme); };
    THALWEG_TRY(choice, plan::best_plan(subject->request, subject->routing, subject->options));
  }
  THALWEG_TRY_STATUS(arguments.outputs.write(choice.best, subject->topology));
  std::cout << (arguments.json ? lab::choice_json(choice, subject->topology).dump(2) + "\n"
                               : lab::choice_text(choice, subject->topology));
  return 0;
}

}  // namespace

void add_plan_best(CLI::App& plan) {
  auto arguments = std::make_shared<PlanBestArguments>();
  CLI::App& app =
      *plan.add_subcommand("best", "the fastest scheme and chunking, or strategy, and why");
  add_plan_options(app, arguments->subject);
  add_output_options(app, arguments->outputs);
  const std::vector<CLI::Option*> of_schemes = app.get_options([](const CLI::Option* option) {
    return !std::ranges::any_of(kShared,
                                [&](const char* name) { return option->check_name(name); });
  });
  CLI::Option* const of_strategies =
      app.add_flag("--strategies", arguments->of_strategies,
                   "choose among strategies of synchronization, as `plan mixing` compares them");
  for (CLI::Option* const option : of_schemes) option->excludes(of_strategies);
  for (CLI::Option* const option : add_strategy_options(app, arguments->strategies)) {
    option->needs(of_strategies);
  }
  app.get_option("--size")->description(
      "size of the tensor, with a unit: 97MB, 64KiB; with --strategies of what is exchanged, 100MB "
      "or the --model's if not given");
  app.add_flag("--time", arguments->time,
               "only choose, make no plan, and say how long the choice took")
      ->excludes(of_strategies);
  app.add_flag("--json", arguments->json, "print a JSON object");
  add_examples(app, {"thalweg plan best --topology slow-nic --size 97MB --plan best.json",
                     "thalweg plan best --topology two-racks --strategies --model resnet50"});
  on_run(app, [arguments] { return run_plan_best(*arguments); });
}

}  // namespace thalweg::cli
