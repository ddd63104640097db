// RAT (Wan et al., APNet 2020): allreduce trees that follow the regions of the network, many side
// by side, each with its share of the tensor. rat/trees.h says what a tree is. With l levels of
// regions it takes 2(l+1) steps, and has the least traffic across regions that any allreduce can
// have: each region sends its sum out once and takes the result in once.
//
// "rat" gives every tree the same share, "rat-weighted" the shares that load the network best.
#include <algorithm>
#include <array>
#include <cmath>

#include "plan/rat/trees.h"
#include "plan/rat/weights.h"
#include "plan/schemes/parts.h"
#include "plan/schemes/schemes.h"
#include "topology/routing.h"

namespace thalweg::plan {
namespace {

// "auto" uses all trees if there are at most this many, and otherwise one per host.
constexpr int kAllTreesAtMost = 64;
// More trees than this make chunks too small to be worth a message.
constexpr int kMostTrees = 65536;
// No weighted tree carries less than this fraction of an equal share per host.
constexpr double kLeastPartOfShare = 1.0 / 8;

constexpr ParameterSpec kRegionsParameter{
    .name = "regions",
    .default_value = "all",
    .meaning =
        "which regions aggregate: all, or oversubscribed (only where the uplinks are slower "
        "than the hosts)"};

Result<RatRegions> regions_of(const Parameters& parameters) {
  constexpr std::array<std::string_view, 2> kChoices{"all", "oversubscribed"};
  THALWEG_TRY(const std::string choice, parameters.choice("regions", kChoices));
  return choice == "all" ? RatRegions::kAll : RatRegions::kOversubscribed;
}

Result<std::vector<RatTree>> equal_trees(const std::vector<RatGroup>& groups,
                                         const Parameters& parameters, Rank root) {
  const int all = count_trees(groups, root);
  const auto hosts = static_cast<int>(groups.back().all_hosts.size());
  const std::string& wanted = parameters.text("trees");
  if (wanted == "auto") {
    return all <= kAllTreesAtMost ? all_trees(groups, root) : rotated_trees(groups, hosts, root);
  }
  if (wanted == "all") {
    if (all <= kMostTrees) return all_trees(groups, root);
    return Error("parameter trees=all: this network has more than 65536 trees; use trees=auto");
  }
  THALWEG_TRY(const int count, parameters.integer("trees", 1, kMostTrees));
  return rotated_trees(groups, count, root);
}

// Makes one chunk per tree, as long as its weight says; the lengths add up to the tensor.
Plan plan_of(const PlanRequest& request, const std::vector<RatGroup>& groups,
             const std::vector<RatTree>& trees, bool equal) {
  PlanBuilder builder(plan_header(request));
  const auto count = static_cast<std::int64_t>(trees.size());
  std::vector<Tree> edges;
  double weight = 0;
  std::int64_t offset = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const RatTree& tree = trees[static_cast<std::size_t>(i)];
    weight += tree.weight;
    const auto cut = static_cast<std::int64_t>(
        std::llround(std::min(weight, 1.0) * static_cast<double>(request.elements)));
    const std::int64_t end = i + 1 == count ? request.elements : std::max(cut, offset);
    const Share share = equal ? share_of(request.elements, count, i)
                              : Share{.offset = offset, .length = end - offset};
    offset = end;
    edges.push_back(edges_of(tree, groups, {add_chunk_of(builder, share)}));
  }
  run_trees(builder, edges);
  return std::move(builder).finish();
}

// One round for the groups of each height. `parts` says how much each host aggregates for each of
// its groups; within a group all hosts send to all aggregators.
std::vector<OutlineRound> rounds_of(const std::vector<RatGroup>& groups, const RatParts& parts,
                                    double bytes) {
  std::vector<OutlineRound> up(static_cast<std::size_t>(groups.back().height));
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const RatGroup& group = groups[g];
    std::vector<OutlineExchange>& exchanges =
        up[static_cast<std::size_t>(group.height) - 1].exchanges;
    // A child's aggregator sends to the group's where that is not in the child.
    const auto aggregators_without = [&](const std::vector<Rank>& left_out) {
      std::vector<topology::HostWeight> result;
      for (std::size_t i = 0; i < group.all_hosts.size(); ++i) {
        const Rank host = group.all_hosts[i];
        if (parts[g][i] > 0 && !std::ranges::binary_search(left_out, host)) {
          result.push_back({.rank = host, .value = bytes * parts[g][i]});
        }
      }
      return result;
    };
    if (!group.hosts.empty()) {
      OutlineExchange& own = exchanges.emplace_back();
      for (const Rank host : group.hosts) own.from.push_back({.rank = host, .value = 1});
      own.to = aggregators_without({});
    }
    for (const std::size_t child : group.children) {
      OutlineExchange& from_child = exchanges.emplace_back();
      for (std::size_t i = 0; i < parts[child].size(); ++i) {
        if (parts[child][i] == 0) continue;
        from_child.from.push_back({.rank = groups[child].all_hosts[i], .value = parts[child][i]});
      }
      from_child.to = aggregators_without(groups[child].all_hosts);
    }
  }
  return up_and_down(std::move(up));
}

// The trees with one aggregator follow one another on the connection to it.
double trees_per_connection(const std::vector<RatGroup>& groups, int trees) {
  std::size_t largest = 1;
  for (const RatGroup& group : groups) {
    if (group.height == 1) largest = std::max(largest, group.hosts.size());
  }
  return std::max(1.0, static_cast<double>(trees) / static_cast<double>(largest));
}

double drift_of(const std::vector<RatGroup>& groups) { return groups.size() > 1 ? 0.5 : 0; }

Result<Outline> outline_rat(const PlanRequest& request, const Parameters& parameters) {
  THALWEG_TRY(const RatRegions regions, regions_of(parameters));
  const std::vector<RatGroup> groups = rat_groups(request.topology, regions);
  if (groups.back().member_count() < 2) return Outline{};
  const std::string& wanted = parameters.text("trees");
  if (wanted == "auto" || wanted == "all") {
    const int all = count_trees(groups);
    const int trees =
        wanted == "all" || all <= kAllTreesAtMost ? all : request.topology.host_count();
    return Outline{.rounds = rounds_of(groups, uniform_parts(groups), share_bytes(request, 1)),
                   .chunk = share_bytes(request, static_cast<std::size_t>(trees)),
                   .units = trees_per_connection(groups, trees),
                   .drift = drift_of(groups)};
  }
  THALWEG_TRY(const std::vector<RatTree> trees, equal_trees(groups, parameters, {}));
  Outline outline{.chunk = share_bytes(request, trees.size()), .drift = drift_of(groups)};
  for (const RatTree& tree : trees) {
    add_tree_rounds(edges_of(tree, groups, {}), outline.chunk, outline.rounds);
  }
  outline.rounds = up_and_down(std::move(outline.rounds));
  return outline;
}

Result<Outline> outline_weighted(const PlanRequest& request, const Parameters& parameters) {
  THALWEG_TRY(const RatRegions regions, regions_of(parameters));
  const std::vector<RatGroup> groups = rat_groups(request.topology, regions);
  const topology::Routing routing(request.topology);
  THALWEG_TRY(const RatParts parts, best_parts(groups, request.topology, routing));
  if (parts == uniform_parts(groups)) return outline_rat(request, parameters);
  const auto trees = 2 * static_cast<std::size_t>(request.topology.host_count());
  return Outline{.rounds = rounds_of(groups, parts, share_bytes(request, 1)),
                 .chunk = share_bytes(request, trees),
                 .units = trees_per_connection(groups, static_cast<int>(trees)),
                 .drift = drift_of(groups)};
}

Result<Plan> generate_rat(const PlanRequest& request, const Parameters& parameters) {
  THALWEG_TRY(const RatRegions regions, regions_of(parameters));
  const std::vector<RatGroup> groups = rat_groups(request.topology, regions);
  THALWEG_TRY(const std::vector<RatTree> trees,
              equal_trees(groups, parameters, plan_header(request).root));
  return plan_of(request, groups, trees, true);
}

Status each_tree_of_rat(const PlanRequest& request, const Parameters& parameters,
                        const TreeVisitor& visit) {
  THALWEG_TRY(const RatRegions regions, regions_of(parameters));
  const std::vector<RatGroup> groups = rat_groups(request.topology, regions);
  THALWEG_TRY(const std::vector<RatTree> trees, equal_trees(groups, parameters, {}));
  const auto count = static_cast<std::int64_t>(trees.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const Share share = share_of(request.elements, count, i);
    if (share.length == 0) continue;
    const Tree tree = edges_of(trees[static_cast<std::size_t>(i)], groups, {});
    THALWEG_TRY_STATUS(visit(tree, Bytes(share.length * request.element_bytes)));
  }
  return ok_status();
}

Result<Plan> generate_weighted(const PlanRequest& request, const Parameters& parameters) {
  THALWEG_TRY(const RatRegions regions, regions_of(parameters));
  const std::vector<RatGroup> groups = rat_groups(request.topology, regions);
  const topology::Routing routing(request.topology);
  THALWEG_TRY(const RatParts parts, best_parts(groups, request.topology, routing));
  if (parts == uniform_parts(groups)) return generate_rat(request, parameters);
  const double least = kLeastPartOfShare / request.topology.host_count();
  return plan_of(request, groups, trees_from_parts(groups, parts, least), false);
}

}  // namespace

const Scheme kRat{
    .name = "rat",
    .summary = "one aggregator a region, many trees side by side, equal shares",
    .collectives = {Collective::kAllreduce, Collective::kReduce, Collective::kBroadcast},
    .parameters = {kRegionsParameter,
                   {.name = "trees",
                    .default_value = "auto",
                    .meaning = "how many: a number, all, or auto (all up to 64, else one a host)"}},
    .generate = generate_rat,
    .outline = outline_rat,
    .each_tree = each_tree_of_rat,
};

const Scheme kRatWeighted{
    .name = "rat-weighted",
    .summary = "RAT with the shares that keep the most loaded link least loaded",
    .collectives = {Collective::kAllreduce},
    .parameters = {kRegionsParameter,
                   {.name = "trees",
                    .default_value = "auto",
                    .meaning = "as for rat, used where equal shares are best"}},
    .generate = generate_weighted,
    .outline = outline_weighted,
};

}  // namespace thalweg::plan
