#include "net/collective/plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "plan/planner.h"
#include "plan/scheme.h"
#include "plan/verify.h"
#include "topology/load.h"
#include "topology/routing.h"

namespace thalweg {
namespace {

// Kept; beyond this a program with ever new sizes starts afresh.
constexpr std::size_t kMostPlans = 1024;
// Up to this many bytes the number of steps decides, above it the number of bytes.
constexpr std::int64_t kSmall = 32 << 10;
// Above this many bytes an allreduce is cut, however few the ranks: adding up costs too.
constexpr double kMostWhole = 256 << 10;

// A butterfly of n ranks saves log2(n) steps of halving-doubling's 2 log2(n), and sends log2(n)
// tensors where that sends 2(n − 1)/n. A step costs what kSmall bytes do.
bool is_small_allreduce(std::int64_t bytes, int ranks) {
  const double steps = std::log2(ranks);
  const double more = steps - 2.0 * (ranks - 1) / ranks;
  const double limit = more > 0 ? kSmall * steps / more : kMostWhole;
  return static_cast<double>(bytes) <= std::min(limit, kMostWhole);
}

const char* usual_scheme(Collective collective, std::int64_t bytes, int ranks) {
  switch (collective) {
    case Collective::kAllreduce:
      return is_small_allreduce(bytes, ranks) ? "butterfly" : "halving-doubling";
    case Collective::kReduce:
    case Collective::kBroadcast:
      return bytes <= kSmall ? "k-nomial" : "double-tree";
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kAllToAll:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kMix:
      break;
  }
  return "direct";
}

std::string_view name_in(std::string_view spec) { return spec.substr(0, spec.find(':')); }

}  // namespace

Result<std::unique_ptr<Plans>> Plans::make(int ranks, int rank, const std::string& topology,
                                           const std::string& scheme) {
  const std::string text =
      topology.empty() ? fmt::format("single-switch:hosts={}", ranks) : topology;
  const bool is_file = text.find('\n') != std::string::npos;
  THALWEG_TRY(Topology network,
              is_file ? topology_from_yaml(text, "the topology") : topology_from_shorthand(text));
  if (network.host_count() != ranks) {
    return Error(fmt::format("the topology has {} hosts, and the communicator {} ranks",
                             network.host_count(), ranks));
  }
  if (!scheme.empty()) {
    THALWEG_TRY(const Scheme* known, find_scheme(name_in(scheme)));
    const PlanRequest probe{
        .collective = known->collectives.front(), .topology = network, .elements = ranks};
    if (const auto plan = make_plan(scheme, probe); !plan.ok()) return plan.error();
  }
  return std::unique_ptr<Plans>(new Plans(std::move(network), rank, !topology.empty(), scheme));
}

Result<Plan> Plans::plan_for(const Request& request) const {
  const PlanRequest wanted{.collective = request.collective,
                           .topology = topology_,
                           .elements = request.elements,
                           .element_bytes = request.element_bytes,
                           .root = Rank(request.root)};
  if (!request.scheme.empty()) return make_plan(request.scheme, wanted);
  if (!scheme_.empty()) {
    THALWEG_TRY(const Scheme* known, find_scheme(name_in(scheme_)));
    // What the communicator's scheme cannot do is done by the usual one.
    if (std::ranges::find(known->collectives, request.collective) != known->collectives.end()) {
      return make_plan(scheme_, wanted);
    }
  }
  if (choose_ && request.collective == Collective::kAllreduce) {
    const Routing routing(topology_);
    THALWEG_TRY(Choice choice, best_plan(wanted, routing, {}));
    return std::move(choice.best.plan);
  }
  return make_plan(usual_scheme(request.collective, request.elements * request.element_bytes,
                                topology_.host_count()),
                   wanted);
}

Result<Duration> Plans::predicted(const Request& request) {
  THALWEG_TRY(const std::shared_ptr<const PreparedPlan> prepared, get(request));
  const Routing routing(topology_);
  THALWEG_TRY(const EvaluatedPlan evaluated, evaluate(prepared->plan, topology_, routing, {}));
  return evaluated.cost.total;
}

Result<bool> Plans::faster_in_network(const Request& request, InNetworkRequest how) {
  const Key key = key_of(request);
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = in_network_.find(key); found != in_network_.end()) return found->second;
  }
  how.elements = request.elements;
  const std::int64_t blocks = (request.elements - 1) / how.block_elements + 1;
  THALWEG_TRY(how.agreement, predicted({.elements = blocks, .element_bytes = 1, .scheme = {}}));
  THALWEG_TRY(const Duration among_ranks, predicted(request));
  const bool faster = in_network_time(how, topology_, {}) < among_ranks;
  const std::lock_guard lock(mutex_);
  if (in_network_.size() >= kMostPlans) in_network_.clear();
  in_network_[key] = faster;
  return faster;
}

Plans::Key Plans::key_of(const Request& request) {
  return {request.collective, request.elements, request.element_bytes, request.root,
          std::string(request.scheme)};
}

Result<std::shared_ptr<const PreparedPlan>> Plans::get(const Request& request) {
  const Key key = key_of(request);
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = plans_.find(key); found != plans_.end()) return found->second;
  }
  THALWEG_TRY(Plan plan, plan_for(request));
  if (plan.ranks != plan.contributors) {
    return Error(fmt::format("scheme {}: needs {} helpers that are not ranks", plan.scheme,
                             plan.ranks - plan.contributors));
  }
  if (const auto proof = verify(plan); !proof.ok()) return proof.error();
  RankPlan rank_plan(plan, Rank(rank_));
  auto prepared = std::make_shared<const PreparedPlan>(std::move(plan), std::move(rank_plan));
  const std::lock_guard lock(mutex_);
  if (plans_.size() >= kMostPlans) plans_.clear();
  plans_[key] = prepared;
  return prepared;
}

}  // namespace thalweg
