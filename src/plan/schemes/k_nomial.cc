// k-nomial tree (k = 2: binomial): position i, written in base k, sends to the position whose
// lowest nonzero digit is set to 0. A reduce goes up the tree and a broadcast down the same tree:
// at most ⌈log_k w⌉ steps each, with the whole tensor on every edge. Positions that differ in low
// digits are near neighbours in region order, so the lower levels of the tree stay within regions.
#include <array>

#include "plan/schemes/parts.h"
#include "plan/schemes/schemes.h"

namespace thalweg::plan {
namespace {

constexpr int kLargestK = kMaxPlanRanks;

Tree k_nomial_tree(const std::vector<Rank>& order, std::size_t k, std::vector<ChunkIndex> chunks) {
  Tree tree{.chunks = std::move(chunks), .levels = {}};
  for (std::size_t digit = 1; digit < order.size(); digit *= k) {
    auto& level = tree.levels.emplace_back();
    for (std::size_t i = digit; i < order.size(); i += digit) {
      const std::size_t parent = i - i % (digit * k);
      if (parent != i) level.push_back({.child = order[i], .parent = order[parent]});
    }
  }
  return tree;
}

Result<Plan> generate_k_nomial(const PlanRequest& request, const Parameters& parameters) {
  THALWEG_TRY(const int radix, parameters.integer("k", 2, kLargestK));
  const auto k = static_cast<std::size_t>(radix);
  PlanBuilder builder(plan_header(request));
  const Rank root = builder.plan().root;
  const std::vector<Rank> order = root.valid() ? ranks_from_root(request.topology, root)
                                               : ranks_in_region_order(request.topology);

  run_trees(builder, std::array{k_nomial_tree(order, k, add_parts(builder, 1))});
  return std::move(builder).finish();
}

Result<Outline> outline_k_nomial(const PlanRequest& request, const Parameters& parameters) {
  THALWEG_TRY(const int radix, parameters.integer("k", 2, kLargestK));
  Outline outline{.chunk = share_bytes(request, 1), .drift = 0.4};
  add_tree_rounds(
      k_nomial_tree(ranks_in_region_order(request.topology), static_cast<std::size_t>(radix), {}),
      outline.chunk, outline.rounds);
  outline.rounds = up_and_down(std::move(outline.rounds));
  return outline;
}

}  // namespace

const Scheme kKNomial{
    .name = "k-nomial",
    .summary = "one tree of degree k−1 a level: reduce up, broadcast down",
    .collectives = {Collective::kAllreduce, Collective::kReduce, Collective::kBroadcast},
    .parameters = {{.name = "k",
                    .default_value = "2",
                    .meaning = "the base of the tree, 2 (binomial) to 8192"}},
    .generate = generate_k_nomial,
    .outline = outline_k_nomial,
};

}  // namespace thalweg::plan
