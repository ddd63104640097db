// `thalweg plan compare`: every scheme on one network, side by side.
#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/commands.h"
#include "cli/plan_arguments.h"
#include "lab/bench/allreduce/simulated.h"
#include "lab/terminal.h"

namespace thalweg::cli {
namespace {

constexpr int kSimulatedCalls = 5;

struct PlanCompareArguments {
  lab::PlanArguments subject;
  std::vector<std::string> schemes;
  bool simulate = false;
  bool json = false;
};

// What the packet simulator has for each plan's scheme, over TCP.
Result<std::vector<Duration>> simulate_all(const lab::PlanSubject& subject,
                                           const std::vector<plan::EvaluatedPlan>& plans,
                                           lab::Progress& progress) {
  if (subject.request.collective != plan::Collective::kAllreduce) {
    return Error("--simulate: of an allreduce only");
  }
  std::vector<Duration> times;
  for (const plan::EvaluatedPlan& e : plans) {
    progress.show(e.plan.scheme + ", simulated",
                  static_cast<double>(times.size()) / static_cast<double>(plans.size()));
    const Bytes size(subject.request.elements * subject.request.element_bytes);
    THALWEG_TRY(
        const Duration time,
        lab::allreduce::simulate(
            subject.topology,
            {.transport = "tcp", .scheme = e.plan.scheme, .size = size, .calls = kSimulatedCalls}));
    times.push_back(time);
  }
  return times;
}

Result<std::vector<plan::EvaluatedPlan>> evaluate_all(const lab::PlanSubject& subject,
                                                      const std::vector<std::string>& schemes) {
  if (schemes.empty())
    return plan::compare_schemes(subject.request, subject.routing, subject.options);
  std::vector<plan::EvaluatedPlan> result;
  for (const std::string& spec : schemes) {
    THALWEG_TRY(plan::EvaluatedPlan evaluated,
                plan::evaluate_scheme(spec, subject.request, subject.routing, subject.options));
    result.push_back(std::move(evaluated));
  }
  return result;
}

Result<int> run_plan_compare(const PlanCompareArguments& arguments) {
  THALWEG_TRY(const auto subject, lab::PlanSubject::from(arguments.subject));
  std::vector<plan::EvaluatedPlan> plans;
  std::vector<Duration> simulated;
  {
    lab::Progress progress;
    subject->options.progress = [&](const std::string& scheme) { progress.show(scheme); };
    THALWEG_TRY(plans, evaluate_all(*subject, arguments.schemes));
    if (arguments.simulate) {
      THALWEG_TRY(simulated, simulate_all(*subject, plans, progress));
    }
  }
  if (arguments.json) {
    auto rows = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < plans.size(); ++i) {
      rows.push_back(lab::summary_json(plans[i], subject->topology));
      if (arguments.simulate) rows.back()["simulated_ms"] = simulated[i].ms();
    }
    std::cout << rows.dump(2) << '\n';
    return 0;
  }
  std::cout << plan::name_of(subject->request.collective) << " of " << arguments.subject.size
            << " on " << subject->topology.name() << ", " << subject->topology.host_count()
            << " hosts; every plan proved\n\n"
            << lab::summary_table(plans, subject->topology, simulated)
            << "\npredicted: as packets, passed on in messages; fluid: bytes alone, at the best "
               "chunking (parts a chunk);\nlimit: what the slowest link needs for its bytes\n";
  return 0;
}

}  // namespace

void add_plan_compare(CLI::App& plan) {
  auto arguments = std::make_shared<PlanCompareArguments>();
  CLI::App& app = *plan.add_subcommand("compare", "all schemes side by side on one network");
  add_plan_options(app, arguments->subject);
  app.add_option("--scheme", arguments->schemes,
                 "only these, each a name or name:key=value,… (see thalweg plan schemes)");
  app.add_flag("--simulate", arguments->simulate,
               "also run every scheme packet by packet over TCP, as `bench allreduce --simulate`");
  app.add_flag("--json", arguments->json, "print a JSON array, one object a scheme");
  add_examples(app,
               {"thalweg plan compare --topology two-racks --size 97MB",
                "thalweg plan compare --topology "
                "leaf-spine:racks=2,hosts=4,spines=1,host=10G,uplink=10G --size 64KiB --simulate"});
  on_run(app, [arguments] { return run_plan_compare(*arguments); });
}

}  // namespace thalweg::cli
