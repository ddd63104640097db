// `thalweg plan compare`: every scheme on one network, side by side.
#include <iostream>
#include <memory>

#include "cli/plan.h"
#include "cli/plan_arguments.h"

namespace thalweg {
namespace {

struct Arguments {
  PlanArguments subject;
  std::vector<std::string> schemes;
  bool json = false;
};

Result<std::vector<EvaluatedPlan>> evaluate_all(const PlanSubject& subject,
                                                const std::vector<std::string>& schemes) {
  if (schemes.empty()) return compare_schemes(subject.request, subject.routing, subject.options);
  std::vector<EvaluatedPlan> result;
  for (const std::string& spec : schemes) {
    THALWEG_TRY(EvaluatedPlan evaluated,
                evaluate_scheme(spec, subject.request, subject.routing, subject.options));
    result.push_back(std::move(evaluated));
  }
  return result;
}

Result<int> run(const Arguments& arguments) {
  THALWEG_TRY(const auto subject, PlanSubject::from(arguments.subject));
  std::vector<EvaluatedPlan> plans;
  {
    Progress progress;
    subject->options.progress = [&](const std::string& scheme) { progress.show(scheme); };
    THALWEG_TRY(plans, evaluate_all(*subject, arguments.schemes));
  }
  if (arguments.json) {
    auto rows = nlohmann::ordered_json::array();
    for (const EvaluatedPlan& e : plans) rows.push_back(summary_json(e, subject->topology));
    std::cout << rows.dump(2) << '\n';
    return 0;
  }
  std::cout << name_of(subject->request.collective) << " of " << arguments.subject.size << " on "
            << subject->topology.name() << ", " << subject->topology.host_count()
            << " hosts; every plan proved\n\n"
            << summary_table(plans, subject->topology)
            << "\npredicted: fluid model, best chunking (parts a chunk); limit: what the slowest "
               "link needs for its bytes\n";
  return 0;
}

}  // namespace

void add_plan_compare(CLI::App& plan) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& app = *plan.add_subcommand("compare", "all schemes side by side on one network");
  arguments->subject.add_to(app);
  app.add_option("--scheme", arguments->schemes,
                 "only these, each a name or name:key=value,… (see thalweg plan schemes)");
  app.add_flag("--json", arguments->json, "print a JSON array, one object a scheme");
  on_run(app, [arguments] { return run(*arguments); });
}

}  // namespace thalweg
