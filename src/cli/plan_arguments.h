// The arguments that the `thalweg plan` subcommands share, and what they lead to.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "plan/planner.h"

namespace thalweg {

// What to plan for, as typed.
struct PlanArguments {
  std::string topology;
  std::string size;
  std::string collective = "allreduce";
  int root = 0;
  int element_bytes = 4;
  std::string alpha = "10us";
  std::string follow_up = "2us";

  void add_to(CLI::App& app);
};

// The same, checked. Not movable: the request refers to the topology.
class PlanSubject {
 public:
  static Result<std::unique_ptr<PlanSubject>> from(const PlanArguments& arguments);

  explicit PlanSubject(Topology topology_in) : topology(std::move(topology_in)) {}
  PlanSubject(const PlanSubject&) = delete;
  PlanSubject& operator=(const PlanSubject&) = delete;

  const Topology topology;
  const Routing routing{topology};
  PlanRequest request{.topology = topology};
  PlannerOptions options;
};

// Where to draw or save a plan.
struct PlanOutputs {
  std::string plan;
  std::string xml;
  std::string svg;
  std::string dot;
  std::string timeline;
  std::vector<int> trees;

  void add_to(CLI::App& app);
  [[nodiscard]] bool wants_timeline() const { return !timeline.empty(); }
  // Renders everything that was asked for, then writes it.
  [[nodiscard]] Status write(const EvaluatedPlan& evaluated, const Topology& topology) const;
};

// A row of `plan compare --json`.
nlohmann::ordered_json summary_json(const EvaluatedPlan& evaluated, const Topology& topology);
// The same for people: a table with one row a plan.
std::string summary_table(const std::vector<EvaluatedPlan>& plans, const Topology& topology);

}  // namespace thalweg
