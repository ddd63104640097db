// The planner: which scheme, with which parameters and chunking, is fastest on a network.
//
// It generates every candidate, proves it, counts its bytes and predicts its time. What it says is
// from the plan that would run, not from a formula about it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "plan/accounting.h"
#include "plan/cost.h"
#include "plan/scheme.h"
#include "plan/verify.h"

namespace thalweg {

// A plan with all that is known about it on one topology.
struct EvaluatedPlan {
  Plan plan;
  int pipeline = 1;  // into how many parts each chunk of the scheme was cut
  PlanProof proof;
  Accounting accounting;
  CostEstimate cost;
};

struct PlannerOptions {
  CostOptions cost;
  // Into how many parts to try to cut each chunk, so that one step overlaps the next (pipeline.h);
  // ascending, the first is 1.
  std::vector<int> pipelines{1, 2, 4, 8, 16, 32};
  // Told the name of each candidate before it is looked at, for a progress display.
  std::function<void(const std::string& scheme)> progress;
};

// An error if the plan is wrong (it says how) or does not fit the topology.
Result<EvaluatedPlan> evaluate(Plan plan, const Topology& topology, const Routing& routing,
                               const CostOptions& options);

// A scheme spec at its best pipelining.
Result<EvaluatedPlan> evaluate_scheme(std::string_view spec, const PlanRequest& request,
                                      const Routing& routing, const PlannerOptions& options);

// Every scheme that can do the request's collective, by its default parameters, in the order of
// all_schemes(). Schemes that compute something else (gossip) are not among them.
Result<std::vector<EvaluatedPlan>> compare_schemes(const PlanRequest& request,
                                                   const Routing& routing,
                                                   const PlannerOptions& options);

struct Choice {
  EvaluatedPlan best;
  std::string reason;  // in words, with numbers
  // All candidates that were timed, fastest first, with their predicted times.
  std::vector<std::pair<std::string, Duration>> ranking;
};

// The fastest of the schemes and of their variants with other parameters.
Result<Choice> best_plan(const PlanRequest& request, const Routing& routing,
                         const PlannerOptions& options);

}  // namespace thalweg
