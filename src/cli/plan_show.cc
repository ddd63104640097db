// `thalweg plan show`: one plan: what it does, step by step, and what it costs.
#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "cli/plan.h"
#include "cli/plan_arguments.h"
#include "plan/pipeline.h"

namespace thalweg {
namespace {

struct Arguments {
  PlanArguments subject;
  PlanOutputs outputs;
  std::string scheme = "rat";
  int pipeline = 1;
  int steps = 12;
  bool json = false;
};

// Each step as who sends how much to how many.
void print_steps(const EvaluatedPlan& e) {
  struct Step {
    std::size_t transfers = 0;
    std::size_t reduces = 0;
    Bytes bytes;
  };
  std::vector<Step> steps(static_cast<std::size_t>(e.proof.steps));
  for (std::size_t i = 0; i < e.plan.transfers.size(); ++i) {
    Step& step = steps[static_cast<std::size_t>(e.proof.step_of[i]) - 1];
    ++step.transfers;
    step.reduces += e.plan.transfers[i].kind == TransferKind::kReduce ? 1U : 0U;
    step.bytes += e.plan.size_of(e.plan.transfers[i].chunk);
  }
  std::vector<std::vector<std::string>> rows{{"step", "transfers", "that reduce", "bytes"}};
  for (std::size_t s = 0; s < steps.size(); ++s) {
    rows.push_back({std::to_string(s + 1), std::to_string(steps[s].transfers),
                    std::to_string(steps[s].reduces), to_human(steps[s].bytes)});
  }
  std::cout << '\n' << format_table(rows);
}

void print_transfers(const EvaluatedPlan& e, const Topology& topology, std::size_t most) {
  std::vector<std::vector<std::string>> rows{
      {"transfer", "from", "to", "chunk", "after", "does", "bytes", "step"}};
  const std::size_t shown = std::min(most, e.plan.transfers.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const PlanTransfer& t = e.plan.transfers[i];
    rows.push_back({std::to_string(i), topology.node(topology.host(t.source)).name,
                    topology.node(topology.host(t.target)).name, std::to_string(t.chunk.value()),
                    std::to_string(t.after), t.kind == TransferKind::kReduce ? "reduce" : "copy",
                    to_human(e.plan.size_of(t.chunk)), std::to_string(e.proof.step_of[i])});
  }
  std::cout << '\n' << format_table(rows);
  if (shown < e.plan.transfers.size()) {
    std::cout << fmt::format("… and {} more (--plan F writes all, --transfers N shows N)\n",
                             e.plan.transfers.size() - shown);
  }
}

void print_regions(const EvaluatedPlan& e, const Topology& topology) {
  if (topology.regions().size() < 2) return;
  std::vector<std::vector<std::string>> rows{{"region", "hosts", "oversubscribed", "in", "out"}};
  for (std::size_t r = 1; r < topology.regions().size(); ++r) {
    const Region& region = topology.regions()[r];
    const RegionTraffic& traffic = e.accounting.regions[r];
    rows.push_back({region.name, std::to_string(region.hosts.size()),
                    fmt::format("{:.3g}:1", region.oversubscription), to_human(traffic.in),
                    to_human(traffic.out)});
  }
  std::cout << '\n' << format_table(rows);
}

nlohmann::ordered_json details_json(const EvaluatedPlan& e, const Topology& topology) {
  nlohmann::ordered_json result = summary_json(e, topology);
  auto& regions = result["regions"] = nlohmann::ordered_json::array();
  for (std::size_t r = 1; r < topology.regions().size(); ++r) {
    regions.push_back({{"region", topology.regions()[r].name},
                       {"hosts", topology.regions()[r].hosts.size()},
                       {"oversubscription", topology.regions()[r].oversubscription},
                       {"bytes_in", e.accounting.regions[r].in.count()},
                       {"bytes_out", e.accounting.regions[r].out.count()}});
  }
  auto& links = result["links"] = nlohmann::ordered_json::array();
  for (std::size_t a = 0; a < topology.arc_count(); ++a) {
    const ArcId id(static_cast<std::int32_t>(a));
    const Arc arc = topology.arc(id);
    links.push_back(
        {{"from", topology.node(arc.from).name},
         {"to", topology.node(arc.to).name},
         {"bytes", e.accounting.arc_bytes[a]},
         {"busy_ms", 1e3 * e.accounting.arc_bytes[a] / arc.spec.rate.bytes_per_second()}});
  }
  auto& memory = result["staging_bytes_by_rank"] = nlohmann::ordered_json::array();
  for (const Bytes staging : e.proof.staging) memory.push_back(staging.count());
  return result;
}

Result<int> run(const Arguments& arguments) {
  if (arguments.pipeline < 1 || arguments.pipeline > 4096) {
    return Error(fmt::format("--pipeline: {} is not allowed: 1 to 4096", arguments.pipeline));
  }
  if (arguments.steps < 0) {
    return Error(fmt::format("--transfers: {} is not allowed: 0 or more", arguments.steps));
  }
  THALWEG_TRY(const auto subject, PlanSubject::from(arguments.subject));
  subject->options.cost.timeline = arguments.outputs.wants_timeline();
  THALWEG_TRY(const Plan plan, make_plan(arguments.scheme, subject->request));
  THALWEG_TRY(EvaluatedPlan evaluated,
              evaluate(pipelined(plan, arguments.pipeline), subject->topology, subject->routing,
                       subject->options.cost));
  evaluated.pipeline = arguments.pipeline;
  THALWEG_TRY_STATUS(arguments.outputs.write(evaluated, subject->topology));
  if (arguments.json) {
    std::cout << details_json(evaluated, subject->topology).dump(2) << '\n';
    return 0;
  }
  std::vector<EvaluatedPlan> one;
  one.push_back(std::move(evaluated));
  std::cout << name_of(one[0].plan.collective) << " of " << arguments.subject.size << " on "
            << subject->topology.name() << ": proved\n\n"
            << summary_table(one, subject->topology);
  print_regions(one[0], subject->topology);
  print_steps(one[0]);
  print_transfers(one[0], subject->topology, static_cast<std::size_t>(arguments.steps));
  return 0;
}

}  // namespace

void add_plan_show(CLI::App& plan) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& app = *plan.add_subcommand("show", "one plan: its steps, its cost, its drawing");
  arguments->subject.add_to(app);
  app.add_option("--scheme", arguments->scheme,
                 "a name or name:key=value,… (see thalweg plan schemes)");
  app.add_option("--pipeline", arguments->pipeline, "cut every chunk into this many parts");
  app.add_option("--transfers", arguments->steps, "how many transfers to list");
  arguments->outputs.add_to(app);
  app.add_flag("--json", arguments->json, "print a JSON object");
  on_run(app, [arguments] { return run(*arguments); });
}

}  // namespace thalweg
