// k-nomial tree (k = 2: binomial): position i, written in base k, sends to the position with the
// lowest digit that is not 0 set to 0. Reduce goes up, broadcast down the same tree: at most
// ⌈log_k w⌉ steps each, the whole tensor on every edge. Low digits are near neighbours in region
// order, so the lower levels of the tree stay within regions.
#include <array>

#include "plan/schemes/parts.h"
#include "plan/schemes/schemes.h"

namespace thalweg {
namespace {

constexpr int kLargestK = kMaxPlanRanks;

Result<Plan> generate(const PlanRequest& request, const Parameters& parameters) {
  THALWEG_TRY(const int radix, parameters.integer("k", 2, kLargestK));
  const auto k = static_cast<std::size_t>(radix);
  PlanBuilder builder(plan_header(request));
  const Rank root = builder.plan().root;
  const std::vector<Rank> order = root.valid() ? ranks_from_root(request.topology, root)
                                               : ranks_in_region_order(request.topology);

  Tree tree{.chunks = add_parts(builder, 1), .levels = {}};
  for (std::size_t digit = 1; digit < order.size(); digit *= k) {
    auto& level = tree.levels.emplace_back();
    for (std::size_t i = digit; i < order.size(); i += digit) {
      const std::size_t parent = i - i % (digit * k);
      if (parent != i) level.push_back({.child = order[i], .parent = order[parent]});
    }
  }
  run_trees(builder, std::array{std::move(tree)});
  return std::move(builder).finish();
}

}  // namespace

const Scheme kKNomial{
    .name = "k-nomial",
    .summary = "one tree of degree k−1 a level: reduce up, broadcast down",
    .collectives = {Collective::kAllreduce, Collective::kReduce, Collective::kBroadcast},
    .parameters = {{.name = "k",
                    .default_value = "2",
                    .meaning = "the base of the tree, 2 (binomial) to 8192"}},
    .generate = generate,
};

}  // namespace thalweg
