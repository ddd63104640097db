// RAT (Wan et al., APNet 2020): allreduce trees that follow the regions of the network, many side
// by side, each with its share of the tensor. rat/trees.h says what a tree is. 2(l+1) steps for l
// levels of regions, and the least traffic across regions that any allreduce can have: each region
// sends its sum out once and takes the result in once.
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

namespace thalweg {
namespace {

// With "auto", all trees are used where there are at most this many, and otherwise one a host.
constexpr int kAllTreesAtMost = 64;
// More trees than this make chunks too small to be worth a message.
constexpr int kMostTrees = 65536;
// No weighted tree carries less than this part of what an equal share a host would be.
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

// One chunk a tree, as long as its weight says; the lengths add up to the tensor.
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

Result<Plan> generate(const PlanRequest& request, const Parameters& parameters) {
  THALWEG_TRY(const RatRegions regions, regions_of(parameters));
  const std::vector<RatGroup> groups = rat_groups(request.topology, regions);
  THALWEG_TRY(const std::vector<RatTree> trees,
              equal_trees(groups, parameters, plan_header(request).root));
  return plan_of(request, groups, trees, true);
}

Result<Plan> generate_weighted(const PlanRequest& request, const Parameters& parameters) {
  THALWEG_TRY(const RatRegions regions, regions_of(parameters));
  const std::vector<RatGroup> groups = rat_groups(request.topology, regions);
  const Routing routing(request.topology);
  THALWEG_TRY(const RatParts parts, best_parts(groups, request.topology, routing));
  if (parts == uniform_parts(groups)) return generate(request, parameters);
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
    .generate = generate,
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
};

}  // namespace thalweg
