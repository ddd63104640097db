// `thalweg plan verify FILE`: whether a plan from a file is right, and if not, why.
#include <fmt/core.h>

#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/commands.h"
#include "cli/plan_arguments.h"
#include "lab/files.h"
#include "plan/format/json.h"

namespace thalweg::cli {
namespace {

struct PlanVerifyArguments {
  std::string file;
  std::string topology;
  bool json = false;
};

int report_wrong(const PlanVerifyArguments& arguments, const Error& error) {
  if (arguments.json) {
    const nlohmann::ordered_json result{{"verified", false}, {"error", error.message()}};
    std::cout << result.dump(2) << '\n';
  } else {
    std::cout << "wrong: " << error.message() << '\n';
  }
  return kExitNo;
}

Result<int> run_plan_verify(const PlanVerifyArguments& arguments) {
  THALWEG_TRY(const std::string text, lab::read_file(arguments.file));
  THALWEG_TRY(const plan::Plan plan, plan::plan_from_json(text, arguments.file));
  if (!arguments.topology.empty()) {
    THALWEG_TRY(const topology::Topology topology, lab::load_topology(arguments.topology));
    THALWEG_TRY_STATUS(plan::check_fits(plan, topology));
    const topology::Routing routing(topology);
    Result<plan::EvaluatedPlan> evaluated = plan::evaluate(plan, topology, routing, {});
    if (!evaluated.ok()) return report_wrong(arguments, evaluated.error());
    if (arguments.json) {
      std::cout << lab::summary_json(*evaluated, topology).dump(2) << '\n';
      return 0;
    }
    std::vector<plan::EvaluatedPlan> one;
    one.push_back(std::move(*evaluated));
    std::cout << "proved\n\n" << lab::summary_table(one, topology);
    return 0;
  }
  const Result<plan::PlanProof> proof = plan::verify(plan);
  if (!proof.ok()) return report_wrong(arguments, proof.error());
  if (arguments.json) {
    const nlohmann::ordered_json result{{"verified", true},
                                        {"scheme", plan.scheme},
                                        {"collective", plan::name_of(plan.collective)},
                                        {"ranks", plan.ranks},
                                        {"steps", proof->steps},
                                        {"staging_bytes", proof->peak_staging().count()}};
    std::cout << result.dump(2) << '\n';
  } else {
    std::cout << fmt::format(
        "proved: {} of {} over {} ranks by {}: {} steps, {} transfers, at most {} staged\n",
        plan::name_of(plan.collective), to_human(plan.size()), plan.ranks, plan.scheme,
        proof->steps, plan.transfers.size(), to_human(proof->peak_staging()));
  }
  return 0;
}

}  // namespace

void add_plan_verify(CLI::App& plan) {
  auto arguments = std::make_shared<PlanVerifyArguments>();
  CLI::App& app = *plan.add_subcommand(
      "verify", "prove a plan from a file; exit code 1 if it is wrong, 2 if it cannot be read");
  app.add_option("file", arguments->file, "a plan in JSON (docs/plan-format.md)")->required();
  app.add_option("--topology", arguments->topology, "also count its cost on this network");
  app.add_flag("--json", arguments->json, "print a JSON object");
  add_examples(app, {"thalweg plan verify my-plan.json --topology two-racks"});
  on_run(app, [arguments] { return run_plan_verify(*arguments); });
}

}  // namespace thalweg::cli
