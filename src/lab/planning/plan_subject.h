// The subject of the `thalweg plan` commands, and what they write about a plan.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "plan/planner.h"
#include "topology/routing.h"

namespace thalweg::lab {

// What to plan for, as the user typed it.
struct PlanArguments {
  std::string topology;
  std::string size;
  std::string collective = "allreduce";
  int root = 0;
  int element_bytes = 4;
  std::string alpha = "10us";
  std::string follow_up = "2us";
};

// The same, checked. It cannot be moved, because the request refers to the topology.
class PlanSubject {
 public:
  static Result<std::unique_ptr<PlanSubject>> from(const PlanArguments& arguments);

  explicit PlanSubject(topology::Topology topology_in) : topology(std::move(topology_in)) {}
  PlanSubject(const PlanSubject&) = delete;
  PlanSubject& operator=(const PlanSubject&) = delete;

  const topology::Topology topology;
  const topology::Routing routing{topology};
  plan::PlanRequest request{.topology = topology};
  plan::PlannerOptions options;
};

// The files to which a plan is drawn or saved. An empty path means that it is not.
struct PlanOutputs {
  std::string plan;
  std::string xml;
  std::string svg;
  std::string dot;
  std::string timeline;
  std::vector<int> trees;  // chunks to draw; empty: the first four that differ

  [[nodiscard]] bool wants_timeline() const { return !timeline.empty(); }
  // Whether any file is wanted.
  [[nodiscard]] bool any() const {
    return !(plan.empty() && xml.empty() && svg.empty() && dot.empty() && timeline.empty());
  }
  // Renders everything that was asked for, and then writes it.
  [[nodiscard]] Status write(const plan::EvaluatedPlan& evaluated,
                             const topology::Topology& topology) const;
};

// The numbers of a plan: one row of `plan compare --json`.
nlohmann::ordered_json summary_json(const plan::EvaluatedPlan& evaluated,
                                    const topology::Topology& topology);
// The same for people: a table with one row per plan. `simulated` has one time per plan, or is
// empty.
std::string summary_table(const std::vector<plan::EvaluatedPlan>& plans,
                          const topology::Topology& topology,
                          const std::vector<Duration>& simulated = {});

}  // namespace thalweg::lab
