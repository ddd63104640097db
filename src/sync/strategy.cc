#include "sync/strategy.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"

namespace thalweg::sync {
namespace {

constexpr std::string_view kDsSync = "ds-sync";
constexpr std::string_view kGossip = "gossip";
constexpr std::string_view kLocalSgd = "local-sgd";
constexpr std::string_view kAsp = "asp";
constexpr std::string_view kSsp = "ssp";
constexpr std::string_view kSmallGroups = "ring";  // for groups that are too small for switches
constexpr int kMaxStaleness = 1'000'000;
constexpr plan::ParameterSpec kGroupParameter{
    .name = "group",
    .default_value = "ring",
    .meaning = "the scheme by which a group averages, without parameters; or atp"};
constexpr std::array<plan::ParameterSpec, 4> kDsSyncParameters{
    kGroupParameter,
    plan::ParameterSpec{.name = "across",
                        .default_value = "group",
                        .meaning = "the same for groups of several regions; group: as `group`"},
    plan::ParameterSpec{.name = "slow",
                        .default_value = "none",
                        .meaning = "regions and hosts that are bottlenecks, joined by +; or none"},
    plan::ParameterSpec{
        .name = "seed", .default_value = "1", .meaning = "of the shuffling; 0 or more"}};
constexpr std::array<plan::ParameterSpec, 2> kLocalSgdParameters{
    kGroupParameter, plan::ParameterSpec{.name = "every",
                                         .default_value = "8",
                                         .meaning = "iterations from one average to the next"}};
constexpr plan::ParameterSpec kServersParameter{
    .name = "servers", .default_value = "1", .meaning = "workers that serve too; 1 to all"};
constexpr std::array<plan::ParameterSpec, 1> kAspParameters{kServersParameter};
constexpr std::array<plan::ParameterSpec, 2> kSspParameters{
    kServersParameter,
    plan::ParameterSpec{
        .name = "staleness",
        .default_value = "3",
        .meaning = "iterations that a worker may be ahead of the slowest; 0 or more"}};

// Inserts a value, so that a list in any order, with duplicates, becomes a set.
template <class T>
void insert_sorted(std::vector<T>& list, T value) {
  const auto place = std::ranges::lower_bound(list, value);
  if (place == list.end() || *place != value) list.insert(place, value);
}

}  // namespace

Status add_bottleneck(std::string_view name, const WorkerTree& tree,
                      const topology::Topology& topology, Bottlenecks& bottlenecks) {
  const topology::NodeId node = topology.find_node(name);
  const Rank worker = node.valid() ? topology.rank_of(node) : Rank();
  if (worker.valid()) {
    insert_sorted(bottlenecks.workers, worker);
    return ok_status();
  }
  const Result<int> region = tree.find(name);
  if (!region.ok()) {
    const auto host = [&](int rank) { return topology.node(topology.host(Rank(rank))).name; };
    return Error(fmt::format("{}; nor is it one of the {} hosts, {} to {}",
                             region.error().message(), topology.host_count(), host(0),
                             host(topology.host_count() - 1)));
  }
  insert_sorted(bottlenecks.regions, *region);
  return ok_status();
}

Result<Strategy> Strategy::make(std::string_view spec, const topology::Topology& topology) {
  Strategy strategy(spec, topology);
  const std::size_t colon = spec.find(':');
  THALWEG_TRY_STATUS(strategy.read(spec.substr(0, colon), colon == std::string_view::npos
                                                              ? std::string_view()
                                                              : spec.substr(colon + 1)));
  // A plan for one element, in the iteration that averages, finds what is wrong with the strategy.
  const auto tried = strategy.plans(strategy.period() - 1, {.topology = topology, .elements = 1});
  if (!tried.ok()) return tried.error();
  return strategy;
}

Status Strategy::read(std::string_view name, std::string_view parameters) {
  if (name == kDsSync) return read_ds_sync(parameters);
  if (name == kLocalSgd) return read_local_sgd(parameters);
  if (name == kAsp || name == kSsp) return read_servers(name, parameters);
  if (name_ == kGossip) kind_ = Kind::kGossip;
  return ok_status();
}

Status Strategy::read_servers(std::string_view name, std::string_view text) {
  kind_ = Kind::kServers;
  const std::span<const plan::ParameterSpec> known =
      name == kSsp ? std::span<const plan::ParameterSpec>(kSspParameters) : kAspParameters;
  THALWEG_TRY(const plan::Parameters parameters, plan::parse_parameters(name, known, text));
  servers_.emplace();
  THALWEG_TRY(servers_->servers, parameters.integer("servers", 1, topology_->host_count()));
  if (name == kSsp) {
    THALWEG_TRY(servers_->staleness, parameters.integer("staleness", 0, kMaxStaleness));
  }
  return ok_status();
}

Status Strategy::read_local_sgd(std::string_view text) {
  kind_ = Kind::kGroups;
  THALWEG_TRY(const plan::Parameters parameters,
              plan::parse_parameters(kLocalSgd, kLocalSgdParameters, text));
  THALWEG_TRY(const int every, parameters.integer("every", 1, kMaxSchedulePeriod));
  group_scheme_ = across_scheme_ = parameters.text("group");
  const std::vector<Rank>& all = topology_->region(topology::kWholeNetwork).hosts;
  Grouping alone;
  for (const Rank worker : all) alone.push_back({worker});
  schedule_ = {.workers = topology_->host_count(),
               .seed = 0,
               .period = std::vector<Grouping>(static_cast<std::size_t>(every), alone)};
  schedule_->period.back() = {all};
  return ok_status();
}

Status Strategy::read_ds_sync(std::string_view text) {
  kind_ = Kind::kGroups;
  THALWEG_TRY(const plan::Parameters parameters,
              plan::parse_parameters(kDsSync, kDsSyncParameters, text));
  const auto wrong = [](const Error& error, std::string_view what) {
    return error.within(fmt::format("scheme '{}': {}", kDsSync, what));
  };
  group_scheme_ = parameters.text("group");
  across_scheme_ = parameters.text("across");
  if (across_scheme_ == "group") across_scheme_ = group_scheme_;
  const auto seed = parameters.integer("seed", 0, std::numeric_limits<int>::max());
  if (!seed.ok()) return wrong(seed.error(), "seed");
  const auto tree = WorkerTree::from_topology(*topology_);
  if (!tree.ok()) return wrong(tree.error(), "topology");
  Bottlenecks slow;
  std::string_view names = parameters.text("slow");
  while (names != "none" && !names.empty()) {
    const std::string_view entry = names.substr(0, names.find('+'));
    names.remove_prefix(std::min(names.size(), entry.size() + 1));
    const Status known = add_bottleneck(entry, *tree, *topology_, slow);
    if (!known.ok()) return wrong(known.error(), "slow");
  }
  THALWEG_TRY(schedule_, adjust_groups(*tree, slow, static_cast<std::uint64_t>(*seed)));
  return ok_status();
}

int Strategy::period() const {
  if (kind_ == Kind::kGroups) return static_cast<int>(schedule_->period.size());
  return kind_ == Kind::kGossip ? gossip_period(topology_->host_count()) : 1;
}

Mixing Strategy::mixing() const {
  if (kind_ == Kind::kGroups) return mixing_of(*schedule_);
  return kind_ == Kind::kGossip ? mixing_of_gossip(topology_->host_count()) : mixing_of_all();
}

std::vector<Exchange> Strategy::exchanges(int iteration) const {
  if (kind_ == Kind::kAll)
    return {{.members = topology_->region(topology::kWholeNetwork).hosts, .scheme = name_}};
  if (kind_ == Kind::kGossip) {
    return {{.members = topology_->region(topology::kWholeNetwork).hosts,
             .scheme = fmt::format("gossip:iteration={}", iteration),
             .collective = plan::Collective::kMix}};
  }
  if (kind_ == Kind::kServers) {
    return {{.members = topology_->region(topology::kWholeNetwork).hosts,
             .scheme = fmt::format("ps:servers={}", servers_->servers)}};
  }
  std::vector<Exchange> result;
  for (const Group& group : schedule_->at(iteration)) {
    if (group.size() == 1) continue;
    result.push_back({.members = group, .scheme = scheme_of(group)});
  }
  return result;
}

std::string Strategy::scheme_of(const Group& group) const {
  const bool inside = std::ranges::all_of(group, [&](Rank worker) {
    return topology_->region_of(worker) == topology_->region_of(group.front());
  });
  const std::string& scheme = inside ? group_scheme_ : across_scheme_;
  return scheme == kInSwitch && group.size() < kLeastInSwitch ? std::string(kSmallGroups) : scheme;
}

bool Strategy::uses_switches() const {
  for (int t = 0; t < period(); ++t) {
    if (std::ranges::any_of(exchanges(t), &Exchange::in_switch)) return true;
  }
  return false;
}

Result<std::vector<GroupPlan>> Strategy::plans(int iteration,
                                               const plan::PlanRequest& request) const {
  std::vector<GroupPlan> result;
  for (Exchange& exchange : exchanges(iteration)) {
    if (exchange.in_switch()) {
      result.push_back({.members = std::move(exchange.members), .plan = {}, .in_switch = true});
      continue;
    }
    const bool whole = exchange.members.size() == static_cast<std::size_t>(topology_->host_count());
    const std::optional<topology::Topology> part =
        whole ? std::nullopt : std::optional(topology::restricted_to(*topology_, exchange.members));
    THALWEG_TRY(plan::Plan plan,
                plan::make_plan(exchange.scheme, {.collective = exchange.collective,
                                                  .topology = whole ? *topology_ : *part,
                                                  .elements = request.elements,
                                                  .element_bytes = request.element_bytes,
                                                  .root = Rank(0),
                                                  .tensor = request.tensor}));
    if (kind_ == Kind::kGroups && plan.ranks != plan.contributors) {
      return Error(
          fmt::format("scheme '{}': '{}' needs hosts beside the workers", name_, plan.scheme));
    }
    result.push_back({.members = std::move(exchange.members), .plan = std::move(plan)});
  }
  return result;
}

}  // namespace thalweg::sync
