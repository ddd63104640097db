// Gossip on the dynamic exponential graph (Assran et al., "Stochastic Gradient Push", 2019; the
// Gossip baseline of DS-Sync): in iteration t rank r sends only to rank r + 2^(t mod ⌈log2 w⌉), and
// mixes its tensor with the one that it receives. No rank gets all contributions in one iteration;
// if w is a power of two, ⌈log2 w⌉ iterations average them all.
#include <limits>

#include "plan/gossip_graph.h"
#include "plan/schemes/schemes.h"

namespace thalweg::plan {
namespace {

Result<Plan> generate_gossip(const PlanRequest& request, const Parameters& parameters) {
  THALWEG_TRY(const int iteration,
              parameters.integer("iteration", 0, std::numeric_limits<int>::max()));
  Plan header = plan_header(request);
  const int ranks = header.ranks;
  const int distance = ranks == 1 ? 0 : 1 << (iteration % gossip_distances(ranks));

  for (Rank rank(0); rank.value() < ranks; ++rank) {
    header.mixes.push_back({rank});
    if (ranks > 1) header.mixes.back().emplace_back((rank.value() + ranks - distance) % ranks);
  }
  PlanBuilder builder(std::move(header));
  const ChunkIndex tensor = builder.add_chunk({.offset = 0, .length = request.elements});
  builder.begin_round();
  for (Rank rank(0); ranks > 1 && rank.value() < ranks; ++rank) {
    builder.reduce(rank, Rank((rank.value() + distance) % ranks), tensor);
  }
  return std::move(builder).finish();
}

}  // namespace

const Scheme kGossip{
    .name = "gossip",
    .summary = "one iteration of the dynamic exponential graph: mix with one other rank",
    .collectives = {Collective::kMix},
    .parameters = {{.name = "iteration",
                    .default_value = "0",
                    .meaning = "t: rank r sends to rank r + 2^(t mod ⌈log2 w⌉); 0 or more"}},
    .generate = generate_gossip,
};

}  // namespace thalweg::plan
