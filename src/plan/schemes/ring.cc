// Ring (Patarasuk and Yuan; Baidu): each rank talks to the next one only, in region order, so that
// each region is entered and left once. The tensor is cut into one block a rank; a reduce-scatter
// of w − 1 steps, in which the blocks travel the ring and are added to, is followed by an
// all-gather of w − 1 more.
//
// Every connection of the ring is busy in every step: cutting blocks further gains nothing.
// Broadcast and reduce use the ring opened at the root, a chain, and cut the tensor into one part a
// rank so that the parts follow one another along it.
#include <array>

#include "plan/schemes/parts.h"
#include "plan/schemes/schemes.h"

namespace thalweg {
namespace {

Plan generate_chain(const PlanRequest& request) {
  PlanBuilder builder(plan_header(request));
  const std::vector<Rank> order = ranks_from_root(request.topology, request.root);
  run_trees(builder, std::array{chain_tree(order, add_parts(builder, order.size()))});
  return std::move(builder).finish();
}

Result<Plan> generate(const PlanRequest& request, const Parameters& /*parameters*/) {
  if (request.collective == Collective::kReduce || request.collective == Collective::kBroadcast) {
    return generate_chain(request);
  }
  PlanBuilder builder(plan_header(request));
  Ring ring{.members = ranks_in_region_order(request.topology), .blocks = {}};
  for (const ChunkIndex chunk : add_rank_shares(builder, ring.members)) {
    ring.blocks.push_back({chunk});
  }
  const std::array rings{std::move(ring)};
  if (request.collective != Collective::kAllGather) ring_reduce_scatter(builder, rings);
  if (request.collective != Collective::kReduceScatter) ring_all_gather(builder, rings);
  return std::move(builder).finish();
}

}  // namespace

const Scheme kRing{
    .name = "ring",
    .summary = "each rank passes blocks to the next: least traffic a rank, longest chain",
    .collectives = {Collective::kAllreduce, Collective::kReduceScatter, Collective::kAllGather,
                    Collective::kBroadcast, Collective::kReduce},
    .parameters = {},
    .generate = generate,
};

}  // namespace thalweg
