// Double binary tree (Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast,
// reduction and scan", 2009; NCCL uses it too): two binary trees over the same ranks, each with
// half the tensor. A rank is an inner node of at most one of them, so that it receives from two
// children in one tree and only sends in the other: both directions of its link are in use.
//
// The first tree numbers its nodes 1 … n in order: the height of a node is the lowest bit of its
// number, and odd numbers are leaves. If n is even, the second tree is its mirror image, which
// makes the odd positions inner nodes and the even ones leaves. If n is odd, mirroring would keep
// the parity, so the second tree is the first, moved on by one position.
//
// An allreduce has both trees over all ranks and takes 2⌊log2 w⌋ steps. A reduce or a broadcast has
// them over all ranks but the root, with the root on top of both: ⌊log2(w − 1)⌋ + 1 steps.
#include <array>
#include <bit>

#include "plan/schemes/parts.h"
#include "plan/schemes/schemes.h"

namespace thalweg::plan {
namespace {

// The parent of node `number` in the in-order tree of nodes 1 … n; 0 for the top node.
std::size_t in_order_parent(std::size_t number, std::size_t n) {
  const std::size_t lowest = number & (~number + 1);
  const std::size_t below_next = number ^ lowest;
  const std::size_t parent = below_next | (lowest << 1U);
  // Where the tree ends at n, a node's parent is the next one up that exists.
  return parent <= n ? parent : below_next;
}

// The in-order tree over nodes[0 … n−1], numbered 1 … n. If `above` is valid, it is the top's
// parent.
Tree in_order_tree(const std::vector<Rank>& nodes, Rank above, ChunkIndex half) {
  const std::size_t n = nodes.size();
  Tree tree{.chunks = {half}, .levels = {}};
  tree.levels.resize(static_cast<std::size_t>(std::bit_width(n)));
  for (std::size_t number = 1; number <= n; ++number) {
    const std::size_t parent = in_order_parent(number, n);
    const Rank parent_rank = parent == 0 ? above : nodes[parent - 1];
    if (!parent_rank.valid()) continue;
    tree.levels[static_cast<std::size_t>(std::countr_zero(number))].push_back(
        {.child = nodes[number - 1], .parent = parent_rank});
  }
  return tree;
}

std::vector<Rank> complement_of(const std::vector<Rank>& nodes) {
  std::vector<Rank> complement(nodes.rbegin(), nodes.rend());
  if (nodes.size() % 2 == 1) {
    complement.assign(nodes.begin() + 1, nodes.end());
    complement.push_back(nodes.front());
  }
  return complement;
}

Result<Plan> generate_double_binary_tree(const PlanRequest& request,
                                         const Parameters& /*parameters*/) {
  PlanBuilder builder(plan_header(request));
  const Rank root = builder.plan().root;
  std::vector<Rank> nodes;
  if (root.valid()) {
    nodes = ranks_from_root(request.topology, root);
    nodes.erase(nodes.begin());
  } else {
    nodes = ranks_in_region_order(request.topology);
  }
  const std::vector<ChunkIndex> halves = add_parts(builder, 2);
  run_trees(builder, std::array{in_order_tree(nodes, root, halves[0]),
                                in_order_tree(complement_of(nodes), root, halves[1])});
  return std::move(builder).finish();
}

Result<Outline> outline_double_binary_tree(const PlanRequest& request,
                                           const Parameters& /*parameters*/) {
  const std::vector<Rank> nodes = ranks_in_region_order(request.topology);
  Outline outline{.chunk = share_bytes(request, 2)};
  add_tree_rounds(in_order_tree(nodes, {}, {}), outline.chunk, outline.rounds);
  add_tree_rounds(in_order_tree(complement_of(nodes), {}, {}), outline.chunk, outline.rounds);
  outline.rounds = up_and_down(std::move(outline.rounds));
  return outline;
}

}  // namespace

const Scheme kDoubleTree{
    .name = "double-tree",
    .summary = "two complementary binary trees, each with half the tensor",
    .collectives = {Collective::kAllreduce, Collective::kReduce, Collective::kBroadcast},
    .parameters = {},
    .generate = generate_double_binary_tree,
    .outline = outline_double_binary_tree,
};

}  // namespace thalweg::plan
