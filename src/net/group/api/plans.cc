#include "net/group/api/plans.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "plan/planner.h"
#include "plan/scheme.h"
#include "plan/verify.h"
#include "topology/format/load.h"
#include "topology/routing.h"

namespace thalweg::net {
namespace {

// The most plans that are kept. A program with ever new sizes reaches it, and all plans are
// dropped.
constexpr std::size_t kMostPlans = 1024;
// Up to this many bytes the number of steps decides, above it the number of bytes.
constexpr std::int64_t kSmall = 32 << 10;
// Above this many bytes an allreduce is cut, however few the ranks: adding up costs too.
constexpr double kMostWhole = 256 << 10;
// Blocks of a ring between hosts have at least so many bytes.
constexpr std::int64_t kRingBlock = 16 << 10;

// A butterfly of n ranks saves log2(n) of the 2 log2(n) steps of halving-doubling, but sends
// log2(n) tensors where that sends 2(n − 1)/n. A step costs as much as kSmall bytes.
bool is_small_allreduce(std::int64_t bytes, int ranks) {
  const double steps = std::log2(ranks);
  const double more = steps - 2.0 * (ranks - 1) / ranks;
  const double limit = more > 0 ? kSmall * steps / more : kMostWhole;
  return static_cast<double>(bytes) <= std::min(limit, kMostWhole);
}

std::string_view name_in(std::string_view spec) { return spec.substr(0, spec.find(':')); }

// A ring sends as many bytes as halving-doubling and keeps every link busy with one flow, where the
// steps of halving-doubling delay one another: on links that limit, it takes a fifth to a third
// longer. A ring has 2(n − 1) steps to 2 log2(n), so its blocks must be worth their steps. Alone,
// it is the faster one or level from 64 KiB a block on, at 100 Mb/s, 1 and 10 Gb/s
// (docs/measurements/2026-11-16-planner.md). But operations of a training step run side by side,
// and those of different schemes delay one another (docs/measurements/2026-11-16-steps.md): so
// rings begin lower. Ranks of one host have no link that limits them.
bool is_worth_a_ring(std::int64_t bytes, int ranks) { return bytes / ranks >= kRingBlock; }

const char* usual_allreduce(std::int64_t bytes, int ranks, bool several_hosts) {
  if (is_small_allreduce(bytes, ranks)) return "butterfly";
  return several_hosts && is_worth_a_ring(bytes, ranks) ? "ring" : "halving-doubling";
}

}  // namespace

const char* usual_scheme(plan::Collective collective, std::int64_t bytes, int ranks,
                         bool several_hosts) {
  switch (collective) {
    case plan::Collective::kAllreduce:
      return usual_allreduce(bytes, ranks, several_hosts);
    case plan::Collective::kReduce:
    case plan::Collective::kBroadcast:
      return bytes <= kSmall ? "k-nomial" : "double-tree";
    case plan::Collective::kReduceScatter:
    case plan::Collective::kAllGather:
    case plan::Collective::kAllToAll:
    case plan::Collective::kGather:
    case plan::Collective::kScatter:
    case plan::Collective::kMix:
      break;
  }
  return "direct";
}

Result<std::unique_ptr<Plans>> Plans::make(int ranks, int rank, const std::string& topology,
                                           const std::string& scheme, bool several_hosts) {
  const std::string text =
      topology.empty() ? fmt::format("single-switch:hosts={}", ranks) : topology;
  const bool is_file = text.find('\n') != std::string::npos;
  THALWEG_TRY(topology::Topology network, is_file
                                              ? topology::topology_from_yaml(text, "the topology")
                                              : topology::topology_from_shorthand(text));
  if (network.host_count() != ranks) {
    return Error(fmt::format("the topology has {} hosts, and the communicator {} ranks",
                             network.host_count(), ranks));
  }
  if (!scheme.empty()) {
    THALWEG_TRY(const plan::Scheme* known, plan::find_scheme(name_in(scheme)));
    const plan::PlanRequest probe{
        .collective = known->collectives.front(), .topology = network, .elements = ranks};
    if (const auto plan = plan::make_plan(scheme, probe); !plan.ok()) return plan.error();
  }
  return std::unique_ptr<Plans>(
      new Plans(std::move(network), rank, !topology.empty(), scheme, several_hosts));
}

Result<plan::Plan> Plans::plan_for(const Request& request) const {
  const plan::PlanRequest wanted{.collective = request.collective,
                                 .topology = topology_,
                                 .elements = request.elements,
                                 .element_bytes = request.element_bytes,
                                 .root = Rank(request.root)};
  if (!request.scheme.empty()) return plan::make_plan(request.scheme, wanted);
  if (!scheme_.empty()) {
    THALWEG_TRY(const plan::Scheme* known, plan::find_scheme(name_in(scheme_)));
    // A collective that the communicator's scheme cannot do uses the usual scheme.
    if (std::ranges::find(known->collectives, request.collective) != known->collectives.end()) {
      return plan::make_plan(scheme_, wanted);
    }
  }
  if (choose_ && request.collective == plan::Collective::kAllreduce) {
    const topology::Routing routing(topology_);
    THALWEG_TRY(const plan::SchemeChoice choice, plan::choose_scheme(wanted, routing, {}));
    return plan::make_plan(choice.scheme, wanted);
  }
  return plan::make_plan(usual_scheme(request.collective, request.elements * request.element_bytes,
                                      topology_.host_count(), several_hosts_),
                         wanted);
}

Result<Duration> Plans::predicted(const Request& request) {
  THALWEG_TRY(const std::shared_ptr<const PreparedPlan> prepared, get(request));
  const topology::Routing routing(topology_);
  THALWEG_TRY(const plan::Outline outline,
              plan::make_outline(prepared->plan.scheme, {.collective = request.collective,
                                                         .topology = topology_,
                                                         .elements = request.elements,
                                                         .element_bytes = request.element_bytes,
                                                         .root = Rank(request.root)}));
  return plan::Predictor(topology_, routing, {}).predict(outline).total;
}

Result<bool> Plans::faster_in_network(const Request& request, plan::InNetworkRequest how) {
  const Key key = key_of(request);
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = in_network_.find(key); found != in_network_.end()) return found->second;
  }
  how.elements = request.elements;
  // The comparison of calls runs beside the sums. It is added because small sums wait for it.
  THALWEG_TRY(how.agreement, predicted({.elements = 1, .element_bytes = 1, .scheme = {}}));
  THALWEG_TRY(const Duration among_ranks, predicted(request));
  const bool faster = plan::in_network_time(how, topology_, {}) < among_ranks;
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
  THALWEG_TRY(plan::Plan plan, plan_for(request));
  if (plan.ranks != plan.contributors) {
    return Error(fmt::format("scheme {}: needs {} helpers that are not ranks", plan.scheme,
                             plan.ranks - plan.contributors));
  }
  if (const auto proof = plan::verify(plan); !proof.ok()) return proof.error();
  exec::RankPlan rank_plan(plan, Rank(rank_));
  auto prepared = std::make_shared<const PreparedPlan>(std::move(plan), std::move(rank_plan));
  const std::lock_guard lock(mutex_);
  if (plans_.size() >= kMostPlans) plans_.clear();
  plans_[key] = prepared;
  return prepared;
}

}  // namespace thalweg::net
