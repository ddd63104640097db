// The planner: it finds which scheme, with which parameters, is fastest on a network.
//
// choose_scheme() predicts every candidate from its outline (predict.h) and makes no plan, so that
// thousands of hosts take less than a second. best_plan() also makes the plan of the chosen scheme,
// proves it, counts its bytes and times it by the fluid model (cost.h) at the best chunking.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "plan/accounting.h"
#include "plan/cost.h"
#include "plan/predict.h"
#include "plan/scheme.h"
#include "plan/verify.h"

namespace thalweg::plan {

struct PlanStep {
  std::size_t transfers = 0;
  std::size_t reduces = 0;
  Bytes bytes;
};

// How large a plan is.
struct PlanExtent {
  std::size_t chunks = 0;
  std::size_t transfers = 0;
  std::vector<PlanStep> steps;
  bool held = true;  // false: the plan has no transfers and no fluid time (forest.h)
};

// A plan with everything that is known about it on one topology.
struct EvaluatedPlan {
  Plan plan;
  PlanExtent extent;
  int pipeline = 1;  // into how many parts each chunk of the scheme was cut
  PlanProof proof;
  Accounting accounting;
  CostEstimate cost;     // by the fluid model
  Duration predicted{};  // as packets, in messages as ranks pass them on (predict.h)
};

struct PlannerOptions {
  CostOptions cost;
  // Into how many parts to try to cut each chunk, so that one step overlaps the next (pipeline.h).
  // In ascending order; the first is 1.
  std::vector<int> pipelines{1, 2, 4, 8, 16, 32};
  // Called with the name of each candidate before it is evaluated, for a progress display.
  std::function<void(const std::string& scheme)> progress;
};

// Fails if the plan is wrong (the error says how) or does not fit the topology.
Result<EvaluatedPlan> evaluate(Plan plan, const topology::Topology& topology,
                               const topology::Routing& routing, const CostOptions& options);

// Evaluates a scheme spec at its best pipelining.
Result<EvaluatedPlan> evaluate_scheme(std::string_view spec, const PlanRequest& request,
                                      const topology::Routing& routing,
                                      const PlannerOptions& options);

// Evaluates every scheme that can do the request's collective, with its default parameters, in the
// order of all_schemes(). Schemes that compute something else (gossip) are left out.
Result<std::vector<EvaluatedPlan>> compare_schemes(const PlanRequest& request,
                                                   const topology::Routing& routing,
                                                   const PlannerOptions& options);

struct SchemeChoice {
  std::string scheme;  // with its parameters, as make_plan() takes it
  Prediction prediction;
  std::string reason;  // in words, with numbers
  // All candidates that were timed, the chosen one first, then the fastest, with predicted times.
  std::vector<std::pair<std::string, Duration>> ranking;
};

// Finds the fastest among the schemes and their variants with other parameters. Among those within
// kTie of it, it takes the one that depends least on rounds that overlap.
Result<SchemeChoice> choose_scheme(const PlanRequest& request, const topology::Routing& routing,
                                   const PlannerOptions& options);

struct Choice {
  EvaluatedPlan best;
  std::string reason;                                     // in words, with numbers
  std::vector<std::pair<std::string, Duration>> ranking;  // as in SchemeChoice
};

// Makes the plan of the scheme that choose_scheme() finds.
Result<Choice> best_plan(const PlanRequest& request, const topology::Routing& routing,
                         const PlannerOptions& options);

}  // namespace thalweg::plan
