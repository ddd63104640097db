// Ring (Patarasuk and Yuan; Baidu): each rank sends only to the next one, in region order, so that
// each region is entered and left once. The tensor is cut into one block per rank. In a
// reduce-scatter of w − 1 steps the blocks travel along the ring and are added up; an all-gather of
// w − 1 more steps follows.
//
// Every connection of the ring is busy in every step, so cutting blocks further gains nothing.
// Broadcast and reduce use the ring opened at the root, a chain, and cut the tensor into one part
// per rank, so that the parts follow one another along it.
#include <array>

#include "plan/schemes/parts.h"
#include "plan/schemes/schemes.h"

namespace thalweg::plan {
namespace {

Plan generate_chain(const PlanRequest& request) {
  PlanBuilder builder(plan_header(request));
  const std::vector<Rank> order = ranks_from_root(request.topology, request.root);
  run_trees(builder, std::array{chain_tree(order, add_parts(builder, order.size()))});
  return std::move(builder).finish();
}

Result<Plan> generate_ring(const PlanRequest& request, const Parameters& /*parameters*/) {
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

Result<Outline> outline_ring(const PlanRequest& request, const Parameters& /*parameters*/) {
  const std::vector<Rank> order = ranks_in_region_order(request.topology);
  Outline outline{.chunk = share_bytes(request, order.size())};
  if (order.size() < 2) return outline;
  outline.rounds.push_back(ring_round(order, outline.chunk));
  outline.rounds.back().repeat *= 2;
  return outline;
}

}  // namespace

const Scheme kRing{
    .name = "ring",
    .summary = "each rank passes blocks to the next: least traffic a rank, longest chain",
    .collectives = {Collective::kAllreduce, Collective::kReduceScatter, Collective::kAllGather,
                    Collective::kBroadcast, Collective::kReduce},
    .parameters = {},
    .generate = generate_ring,
    .outline = outline_ring,
};

}  // namespace thalweg::plan
