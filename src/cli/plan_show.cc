// `thalweg plan show`: one plan, what it does step by step, and what it costs.
#include <fmt/core.h>

#include <charconv>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string_view>

#include "cli/command.h"
#include "cli/commands.h"
#include "cli/plan_arguments.h"
#include "lab/planning/plan_details.h"
#include "plan/forest.h"
#include "plan/pipeline.h"
#include "plan/predict.h"
#include "plan/scheme.h"
#include "plan/schemes/schemes.h"

namespace thalweg::cli {
namespace {

struct PlanShowArguments {
  lab::PlanArguments subject;
  lab::PlanOutputs outputs;
  std::string scheme = "rat";
  int pipeline = 1;
  int steps = 12;
  bool json = false;
};

// More transfers than this take gigabytes. Where the scheme is made of trees, they are not needed.
constexpr std::int64_t kMostHeld = 8'000'000;

// How many trees the scheme has: as many as it says; one for each host if it does not.
std::int64_t trees_of(std::string_view scheme, std::int64_t hosts) {
  constexpr std::string_view kTrees = "trees=";
  const std::size_t at = scheme.find(kTrees);
  if (at == std::string_view::npos) return hosts;
  std::int64_t trees = hosts;
  std::from_chars(scheme.data() + at + kTrees.size(), scheme.data() + scheme.size(), trees);
  return trees;
}

// Whether the plan is made and proved tree by tree.
bool goes_by_trees(const PlanShowArguments& arguments, const lab::PlanSubject& subject) {
  const std::int64_t hosts = subject.topology.host_count();
  return arguments.scheme.substr(0, arguments.scheme.find(':')) == plan::kRat.name &&
         subject.request.collective == plan::Collective::kAllreduce &&
         trees_of(arguments.scheme, hosts) * hosts * 2 > kMostHeld;
}

Result<plan::EvaluatedPlan> evaluated_plan(const PlanShowArguments& arguments,
                                           const lab::PlanSubject& subject) {
  if (!goes_by_trees(arguments, subject)) {
    THALWEG_TRY(const plan::Plan plan, plan::make_plan(arguments.scheme, subject.request));
    return plan::evaluate(plan::pipelined(plan, arguments.pipeline), subject.topology,
                          subject.routing, subject.options.cost);
  }
  const bool lists = arguments.steps > 0 && !arguments.json;
  if (lists || arguments.pipeline > 1 || arguments.outputs.any()) {
    return Error(fmt::format(
        "a plan of {} by {} hosts is proved tree by tree and not held: --transfers 0 sums it up; "
        "--pipeline and files of it are for plans of at most {} transfers",
        arguments.scheme, subject.topology.host_count(), kMostHeld));
  }
  return plan::evaluate_by_trees(arguments.scheme, subject.request, subject.routing,
                                 subject.options);
}

std::string fluid_text(const plan::EvaluatedPlan& e) {
  if (!e.extent.held) return "\nfluid: not computed for a plan that is not held\n";
  return fmt::format(
      "\nfluid: with --pipeline {}; plan compare and plan best take the best number of parts\n",
      e.pipeline);
}

Result<int> run_plan_show(const PlanShowArguments& arguments) {
  if (arguments.pipeline < 1 || arguments.pipeline > 4096) {
    return Error(fmt::format("--pipeline: {} is not allowed: 1 to 4096", arguments.pipeline));
  }
  if (arguments.steps < 0) {
    return Error(fmt::format("--transfers: {} is not allowed: 0 or more", arguments.steps));
  }
  THALWEG_TRY(const auto subject, lab::PlanSubject::from(arguments.subject));
  subject->options.cost.timeline = arguments.outputs.wants_timeline();
  THALWEG_TRY(plan::EvaluatedPlan evaluated, evaluated_plan(arguments, *subject));
  evaluated.pipeline = arguments.pipeline;
  // As `plan compare` predicts it, which does not depend on how chunks are cut.
  THALWEG_TRY(const plan::Outline outline, plan::make_outline(arguments.scheme, subject->request));
  evaluated.predicted = plan::Predictor(subject->topology, subject->routing, subject->options.cost)
                            .predict(outline)
                            .total;
  THALWEG_TRY_STATUS(arguments.outputs.write(evaluated, subject->topology));
  if (arguments.json) {
    std::cout << lab::plan_details_json(evaluated, subject->topology).dump(2) << '\n';
    return 0;
  }
  std::vector<plan::EvaluatedPlan> one;
  one.push_back(std::move(evaluated));
  std::cout << plan::name_of(one[0].plan.collective) << " of " << arguments.subject.size << " on "
            << subject->topology.name() << ": proved\n\n"
            << lab::summary_table(one, subject->topology) << fluid_text(one[0])
            << lab::plan_details_text(one[0], subject->topology,
                                      static_cast<std::size_t>(arguments.steps));
  return 0;
}

}  // namespace

void add_plan_show(CLI::App& plan) {
  auto arguments = std::make_shared<PlanShowArguments>();
  CLI::App& app = *plan.add_subcommand("show", "one plan: its steps, its cost, its drawing");
  add_plan_options(app, arguments->subject);
  app.add_option("--scheme", arguments->scheme,
                 "a name or name:key=value,… (see thalweg plan schemes)");
  app.add_option("--pipeline", arguments->pipeline, "cut every chunk into this many parts");
  app.add_option("--transfers", arguments->steps, "how many transfers to list");
  add_output_options(app, arguments->outputs);
  app.add_flag("--json", arguments->json, "print a JSON object");
  add_examples(app,
               {"thalweg plan show --topology two-racks --size 97MB --scheme rat --svg rat.svg",
                "thalweg plan show --topology fat-tree:k=4,host=10G --size 1GiB --scheme "
                "rat:trees=2 --json"});
  on_run(app, [arguments] { return run_plan_show(*arguments); });
}

}  // namespace thalweg::cli
