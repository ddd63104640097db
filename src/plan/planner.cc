#include "plan/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "plan/pipeline.h"

namespace thalweg {
namespace {

// Variants beside the defaults that are worth a look: other degrees of trees, fewer trees or
// levels. Small tensors like few messages, large ones many paths.
constexpr std::array<std::string_view, 6> kVariants{"k-nomial:k=4", "k-nomial:k=8",
                                                    "ps:servers=1", "rat:trees=1",
                                                    "rat:trees=8",  "rat:regions=oversubscribed"};

// A prediction this close to another is a tie, and the scheme with fewer steps is taken.
constexpr double kTie = 0.005;

std::string_view scheme_name(std::string_view spec) { return spec.substr(0, spec.find(':')); }

bool supports(const Scheme& scheme, Collective collective) {
  return std::ranges::find(scheme.collectives, collective) != scheme.collectives.end();
}

void report(const PlannerOptions& options, std::string_view spec) {
  if (options.progress) options.progress(std::string(spec));
}

bool better(const EvaluatedPlan& a, const EvaluatedPlan& b) {
  const double ratio = a.cost.total.s() / b.cost.total.s();
  if (ratio < 1 - kTie || ratio > 1 + kTie) return ratio < 1;
  return a.proof.steps != b.proof.steps ? a.proof.steps < b.proof.steps : ratio < 1;
}

std::string label(const EvaluatedPlan& e) {
  return e.pipeline == 1 ? e.plan.scheme : fmt::format("{} in {} parts", e.plan.scheme, e.pipeline);
}

std::string explain(const EvaluatedPlan& best, const EvaluatedPlan* second,
                    const Topology& topology) {
  const Accounting& a = best.accounting;
  std::string reason =
      fmt::format("{} steps, {} across regions", best.proof.steps, to_human(a.cross_region));
  if (a.slowest_arc.valid()) {
    const double part = a.slowest_arc_time.s() / best.cost.total.s();
    reason += fmt::format("; {} is busy {:.0f} % of the time, {}", topology.arc_name(a.slowest_arc),
                          100 * part, part > 0.5 ? "so bandwidth decides" : "so latency decides");
  }
  if (second != nullptr) {
    reason += fmt::format("; next is {} ({:.2f} times as long, {} steps, {} across regions)",
                          label(*second), second->cost.total.s() / best.cost.total.s(),
                          second->proof.steps, to_human(second->accounting.cross_region));
  }
  return reason;
}

}  // namespace

Result<EvaluatedPlan> evaluate(Plan plan, const Topology& topology, const Routing& routing,
                               const CostOptions& options) {
  THALWEG_TRY(PlanProof proof, verify(plan));
  THALWEG_TRY_STATUS(check_fits(plan, topology));
  EvaluatedPlan result{.plan = std::move(plan),
                       .pipeline = 1,
                       .proof = std::move(proof),
                       .accounting = {},
                       .cost = {}};
  result.accounting = account(result.plan, result.proof, topology, routing);
  result.cost = estimate_cost(result.plan, result.accounting, topology, routing, options);
  return result;
}

Result<EvaluatedPlan> evaluate_scheme(std::string_view spec, const PlanRequest& request,
                                      const Routing& routing, const PlannerOptions& options) {
  CHECK(!options.pipelines.empty() && options.pipelines.front() == 1);
  report(options, spec);
  THALWEG_TRY(const Plan plan, make_plan(spec, request));
  THALWEG_TRY(EvaluatedPlan best, evaluate(plan, request.topology, routing, options.cost));
  int without_gain = 0;
  for (const int parts : options.pipelines) {
    // No chunking beats the busiest arc; and after two that did not help, finer ones will not.
    if (best.cost.total <= best.accounting.slowest_arc_time || without_gain == 2) break;
    if (parts == 1) continue;
    THALWEG_TRY(EvaluatedPlan finer,
                evaluate(pipelined(plan, parts), request.topology, routing, options.cost));
    if (finer.cost.total >= best.cost.total) {
      ++without_gain;
      continue;
    }
    without_gain = 0;
    finer.pipeline = parts;
    best = std::move(finer);
  }
  return best;
}

Result<std::vector<EvaluatedPlan>> compare_schemes(const PlanRequest& request,
                                                   const Routing& routing,
                                                   const PlannerOptions& options) {
  std::vector<EvaluatedPlan> result;
  for (const Scheme* scheme : all_schemes()) {
    if (!supports(*scheme, request.collective)) continue;
    THALWEG_TRY(EvaluatedPlan evaluated, evaluate_scheme(scheme->name, request, routing, options));
    result.push_back(std::move(evaluated));
  }
  return result;
}

Result<Choice> best_plan(const PlanRequest& request, const Routing& routing,
                         const PlannerOptions& options) {
  THALWEG_TRY(std::vector<EvaluatedPlan> candidates, compare_schemes(request, routing, options));
  for (const std::string_view spec : kVariants) {
    THALWEG_TRY(const Scheme* scheme, find_scheme(scheme_name(spec)));
    if (!supports(*scheme, request.collective)) continue;
    THALWEG_TRY(EvaluatedPlan evaluated, evaluate_scheme(spec, request, routing, options));
    candidates.push_back(std::move(evaluated));
  }
  if (candidates.empty()) {
    return Error(fmt::format("no scheme does '{}'", name_of(request.collective)));
  }
  std::size_t first = 0;
  for (std::size_t i = 1; i < candidates.size(); ++i) {
    if (better(candidates[i], candidates[first])) first = i;
  }
  std::swap(candidates.front(), candidates[first]);
  std::stable_sort(candidates.begin() + 1, candidates.end(),
                   [](const auto& a, const auto& b) { return a.cost.total < b.cost.total; });
  // The runner-up worth naming is another scheme, not a variant of the winner.
  const auto other = std::find_if(candidates.begin() + 1, candidates.end(), [&](const auto& e) {
    return scheme_name(e.plan.scheme) != scheme_name(candidates.front().plan.scheme);
  });
  Choice choice;
  choice.reason =
      explain(candidates.front(), other == candidates.end() ? nullptr : &*other, request.topology);
  for (const EvaluatedPlan& e : candidates) choice.ranking.emplace_back(label(e), e.cost.total);
  choice.best = std::move(candidates.front());
  return choice;
}

}  // namespace thalweg
