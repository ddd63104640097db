// Hierarchical allreduce (DS-Sync, table II): within each innermost region a chain reduces to the
// region's first host, its leader; the leaders run a ring allreduce, and the chains carry the
// result back. It takes 2(G + C − 2) steps with C regions of G hosts.
//
// The tensor is cut into at least as many chunks as the longest chain has hosts, the same number
// for each block of the ring, so that chains and ring work as a pipeline. A region's chain carries
// the chunks in the order in which its leader passes them on.
#include <algorithm>
#include <array>

#include "plan/schemes/parts.h"
#include "plan/schemes/schemes.h"

namespace thalweg::plan {
namespace {

// The drift (outline.h) where a leader turns from its chain to the ring, and from the ring to its
// chain; without a ring it is half of that. Within chains there is none.
constexpr double kTurn = 0.8;

// Leader r sends block r − 1 first (see ring_reduce_scatter), then r − 2, ….
std::vector<ChunkIndex> chunks_in_ring_order(const Ring& ring, std::size_t region) {
  const std::size_t n = ring.blocks.size();
  std::vector<ChunkIndex> chunks;
  for (std::size_t turn = 0; turn < n; ++turn) {
    const auto& block = ring.blocks[(region + n + n - 1 - turn) % n];
    chunks.insert(chunks.end(), block.begin(), block.end());
  }
  return chunks;
}

Result<Plan> generate_hierarchical(const PlanRequest& request, const Parameters& /*parameters*/) {
  PlanBuilder builder(plan_header(request));
  const std::vector<std::vector<Rank>> groups = innermost_groups(request.topology);
  std::size_t largest = 0;
  for (const auto& group : groups) largest = std::max(largest, group.size());

  const std::size_t chunks_per_block = (largest + groups.size() - 1) / groups.size();
  const auto chunks = add_parts(builder, groups.size() * chunks_per_block);
  Ring ring;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    ring.members.push_back(groups[g].front());
    const auto first = chunks.begin() + static_cast<std::ptrdiff_t>(g * chunks_per_block);
    ring.blocks.emplace_back(first, first + static_cast<std::ptrdiff_t>(chunks_per_block));
  }
  std::vector<Tree> chains;
  chains.reserve(groups.size());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    chains.push_back(chain_tree(groups[g], chunks_in_ring_order(ring, g)));
  }

  const std::array leaders{std::move(ring)};
  reduce_up(builder, chains);
  ring_reduce_scatter(builder, leaders);
  ring_all_gather(builder, leaders);
  broadcast_down(builder, chains);
  return std::move(builder).finish();
}

Result<Outline> outline_hierarchical(const PlanRequest& request, const Parameters& /*parameters*/) {
  const std::vector<std::vector<Rank>> groups = innermost_groups(request.topology);
  std::size_t largest = 0;
  std::vector<Rank> leaders;
  std::vector<OutlineRound> up;
  for (const auto& group : groups) {
    largest = std::max(largest, group.size());
    leaders.push_back(group.front());
    add_tree_rounds(chain_tree(group, {}), share_bytes(request, 1), up);
  }
  const std::size_t chunks = groups.size() * ((largest + groups.size() - 1) / groups.size());
  // Chains pass on one chunk after the other. A ring of leaders passes on whole blocks, so that
  // only the parts of a chunk overlap.
  Outline outline{.rounds = up,
                  .chunk = share_bytes(request, chunks),
                  .units = groups.size() > 1 ? 1 : static_cast<double>(chunks)};
  if (groups.size() > 1) {
    outline.rounds.push_back(ring_round(leaders, share_bytes(request, groups.size())));
    outline.rounds.back().repeat *= 2;
    outline.rounds.back().drift = kTurn;
  }
  std::vector<OutlineRound> down = reversed(up);
  if (!down.empty()) down.front().drift = groups.size() > 1 ? kTurn : kTurn / 2;
  outline.rounds.insert(outline.rounds.end(), down.begin(), down.end());
  return outline;
}

}  // namespace

const Scheme kHierarchical{
    .name = "hierarchical",
    .summary = "a chain to the leader of each region, a ring of the leaders, and back",
    .collectives = {Collective::kAllreduce},
    .parameters = {},
    .generate = generate_hierarchical,
    .outline = outline_hierarchical,
};

}  // namespace thalweg::plan
