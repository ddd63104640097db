#include "plan/planner.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "plan/pipeline.h"

namespace thalweg::plan {
namespace {

// Variants worth trying beside the defaults: other degrees of trees, fewer trees or levels. Small
// tensors do best with few messages, large ones with many paths.
constexpr std::array<std::string_view, 6> kVariants{"k-nomial:k=4", "k-nomial:k=8",
                                                    "ps:servers=1", "rat:trees=1",
                                                    "rat:trees=8",  "rat:regions=oversubscribed"};

// Predictions this close are a tie. The one that leaves the least to rounds that overlap wins,
// because that is what the model knows least about.
constexpr double kTie = 0.05;

// Times that differ by less than this part of a prediction are the same.
constexpr double kSame = 0.01;

// Weights of RAT's trees come from a linear program; for more hosts than this it takes too long.
constexpr int kMostWeighed = 64;

struct Candidate {
  std::string spec;
  Prediction prediction;
};

std::string_view scheme_name(std::string_view spec) { return spec.substr(0, spec.find(':')); }

bool supports(const Scheme& scheme, Collective collective) {
  return std::ranges::find(scheme.collectives, collective) != scheme.collectives.end();
}

void report(const PlannerOptions& options, std::string_view spec) {
  if (options.progress) options.progress(std::string(spec));
}

bool better(const Candidate& a, const Candidate& b) {
  const double ratio = a.prediction.total.s() / b.prediction.total.s();
  if (ratio < 1 - kTie || ratio > 1 + kTie) return ratio < 1;
  const double first = a.prediction.overlapped.s();
  const double second = b.prediction.overlapped.s();
  const double same = kSame * b.prediction.total.s();
  return std::abs(first - second) > same ? first < second : ratio < 1;
}

// Whether all hosts have the same rate, all innermost regions as many hosts, and all other links
// the same rate: then equal weights are best for RAT.
bool is_even(const topology::Topology& topology) {
  Bandwidth of_hosts;
  Bandwidth of_switches;
  for (const topology::Link& link : topology.links()) {
    const bool at_host = topology.rank_of(link.a).valid() || topology.rank_of(link.b).valid();
    Bandwidth& rate = at_host ? of_hosts : of_switches;
    if (rate == Bandwidth()) rate = link.spec.rate;
    if (rate != link.spec.rate) return false;
  }
  const auto groups = innermost_groups(topology);
  return std::ranges::all_of(
      groups, [&](const auto& group) { return group.size() == groups.front().size(); });
}

std::vector<std::string_view> candidates_of(const PlanRequest& request) {
  std::vector<std::string_view> specs;
  for (const Scheme* scheme : all_schemes()) {
    if (!supports(*scheme, request.collective)) continue;
    const bool weighs = request.topology.host_count() <= kMostWeighed && !is_even(request.topology);
    if (scheme->name != "rat-weighted" || weighs) specs.push_back(scheme->name);
  }
  for (const std::string_view spec : kVariants) {
    const auto scheme = find_scheme(scheme_name(spec));
    if (supports(**scheme, request.collective)) specs.push_back(spec);
  }
  return specs;
}

std::string explain(const Candidate& best, const Candidate* second,
                    const topology::Topology& topology) {
  const Prediction& p = best.prediction;
  std::string reason = fmt::format("{} steps", p.steps);
  if (p.busiest_arc.valid()) {
    const double part = p.busiest.s() / p.total.s();
    reason += fmt::format("; {} is busy {:.0f} % of the time, {}", topology.arc_name(p.busiest_arc),
                          100 * part, part > 0.5 ? "so bandwidth decides" : "so latency decides");
  }
  if (second != nullptr) {
    reason += fmt::format("; next is {} ({:.2f} times as long, {} steps)", second->spec,
                          second->prediction.total.s() / p.total.s(), second->prediction.steps);
  }
  return reason;
}

PlanExtent extent_of(const Plan& plan, const PlanProof& proof) {
  PlanExtent extent{.chunks = plan.chunks.size(), .transfers = plan.transfers.size(), .steps = {}};
  extent.steps.resize(static_cast<std::size_t>(proof.steps));
  for (std::size_t i = 0; i < plan.transfers.size(); ++i) {
    PlanStep& step = extent.steps[static_cast<std::size_t>(proof.step_of[i]) - 1];
    ++step.transfers;
    step.reduces += plan.transfers[i].kind == TransferKind::kReduce ? 1U : 0U;
    step.bytes += plan.size_of(plan.transfers[i].chunk);
  }
  return extent;
}

}  // namespace

Result<EvaluatedPlan> evaluate(Plan plan, const topology::Topology& topology,
                               const topology::Routing& routing, const CostOptions& options) {
  THALWEG_TRY(PlanProof proof, verify(plan));
  THALWEG_TRY_STATUS(check_fits(plan, topology));
  PlanExtent extent = extent_of(plan, proof);
  EvaluatedPlan result{.plan = std::move(plan),
                       .extent = std::move(extent),
                       .pipeline = 1,
                       .proof = std::move(proof),
                       .accounting = {},
                       .cost = {},
                       .predicted = {}};
  result.accounting = account(result.plan, result.proof, topology, routing);
  result.cost = estimate_cost(result.plan, result.accounting, topology, routing, options);
  result.predicted =
      Predictor(topology, routing, options).predict(outline_of(result.plan, result.proof)).total;
  return result;
}

Result<EvaluatedPlan> evaluate_scheme(std::string_view spec, const PlanRequest& request,
                                      const topology::Routing& routing,
                                      const PlannerOptions& options) {
  CHECK(!options.pipelines.empty() && options.pipelines.front() == 1);
  report(options, spec);
  THALWEG_TRY(const Plan plan, make_plan(spec, request));
  THALWEG_TRY(EvaluatedPlan best, evaluate(plan, request.topology, routing, options.cost));
  int without_gain = 0;
  for (const int parts : options.pipelines) {
    // No chunking beats the busiest arc; and after two that did not help, finer ones will not
    // either.
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
  THALWEG_TRY(const Outline outline, make_outline(spec, request));
  best.predicted = Predictor(request.topology, routing, options.cost).predict(outline).total;
  return best;
}

Result<std::vector<EvaluatedPlan>> compare_schemes(const PlanRequest& request,
                                                   const topology::Routing& routing,
                                                   const PlannerOptions& options) {
  std::vector<EvaluatedPlan> result;
  for (const Scheme* scheme : all_schemes()) {
    if (!supports(*scheme, request.collective)) continue;
    THALWEG_TRY(EvaluatedPlan evaluated, evaluate_scheme(scheme->name, request, routing, options));
    result.push_back(std::move(evaluated));
  }
  return result;
}

Result<SchemeChoice> choose_scheme(const PlanRequest& request, const topology::Routing& routing,
                                   const PlannerOptions& options) {
  Predictor predictor(request.topology, routing, options.cost);
  std::vector<Candidate> candidates;
  for (const std::string_view spec : candidates_of(request)) {
    report(options, spec);
    THALWEG_TRY(const Outline outline, make_outline(spec, request));
    candidates.push_back({.spec = std::string(spec), .prediction = predictor.predict(outline)});
  }
  if (candidates.empty()) {
    return Error(fmt::format("no scheme does '{}'", name_of(request.collective)));
  }
  std::ranges::stable_sort(candidates, {}, [](const Candidate& c) { return c.prediction.total; });
  // Ties are those of the fastest, so that one tie does not lead to the next.
  const Candidate fastest = candidates.front();
  std::size_t first = 0;
  for (std::size_t i = 1; i < candidates.size(); ++i) {
    const bool tie =
        candidates[i].prediction.total.s() <= fastest.prediction.total.s() * (1 + kTie);
    if (tie && better(candidates[i], candidates[first])) first = i;
  }
  std::rotate(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(first),
              candidates.begin() + static_cast<std::ptrdiff_t>(first) + 1);
  // The runner-up worth naming is another scheme, not a variant of the winner.
  const auto other = std::find_if(candidates.begin() + 1, candidates.end(), [&](const auto& c) {
    return scheme_name(c.spec) != scheme_name(candidates.front().spec);
  });
  SchemeChoice choice;
  choice.reason =
      explain(candidates.front(), other == candidates.end() ? nullptr : &*other, request.topology);
  for (const Candidate& c : candidates) choice.ranking.emplace_back(c.spec, c.prediction.total);
  choice.scheme = candidates.front().spec;
  choice.prediction = candidates.front().prediction;
  return choice;
}

Result<Choice> best_plan(const PlanRequest& request, const topology::Routing& routing,
                         const PlannerOptions& options) {
  THALWEG_TRY(SchemeChoice chosen, choose_scheme(request, routing, options));
  THALWEG_TRY(EvaluatedPlan best, evaluate_scheme(chosen.scheme, request, routing, options));
  return Choice{.best = std::move(best),
                .reason = std::move(chosen.reason),
                .ranking = std::move(chosen.ranking)};
}

}  // namespace thalweg::plan
