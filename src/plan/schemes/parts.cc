#include "plan/schemes/parts.h"

#include <algorithm>

#include "base/check.h"

namespace thalweg::plan {
namespace {

void append_from_root(const topology::Topology& topology, topology::RegionId id, Rank root,
                      std::vector<Rank>& order) {
  const topology::Region& region = topology.region(id);
  const topology::RegionId home = topology.region_of(root);
  for (const topology::RegionId child : region.children) {
    if (topology.contains(child, home)) append_from_root(topology, child, root, order);
  }
  if (home == id) order.push_back(root);
  for (const Rank rank : region.hosts) {
    if (rank != root && topology.region_of(rank) == id) order.push_back(rank);
  }
  for (const topology::RegionId child : region.children) {
    if (!topology.contains(child, home)) append_from_root(topology, child, root, order);
  }
}

std::size_t height_of(std::span<const Tree> trees) {
  std::size_t height = 0;
  for (const Tree& tree : trees) height = std::max(height, tree.levels.size());
  return height;
}

// Runs `step(ring, t)` for t = 0 … size−2 of every ring, all rings in the same rounds.
template <class Step>
void run_rings(PlanBuilder& builder, std::span<const Ring> rings, Step step) {
  std::size_t largest = 0;
  for (const Ring& ring : rings) {
    CHECK(ring.members.size() == ring.blocks.size());
    largest = std::max(largest, ring.members.size());
  }
  for (std::size_t t = 0; t + 1 < largest; ++t) {
    builder.begin_round();
    for (const Ring& ring : rings) {
      if (t + 1 < ring.members.size()) step(ring, t);
    }
  }
}

}  // namespace

ChunkIndex add_chunk_of(PlanBuilder& builder, Share share, Rank home) {
  const Plan& plan = builder.plan();
  switch (plan.collective) {
    case Collective::kReduce:
      return builder.add_chunk(share, {}, plan.root);
    case Collective::kBroadcast:
      return builder.add_chunk(share, plan.root, {});
    case Collective::kReduceScatter:
      return builder.add_chunk(share, {}, home);
    case Collective::kAllGather:
      return builder.add_chunk(share, home, {});
    case Collective::kAllreduce:
    case Collective::kMix:
    case Collective::kAllToAll:
    case Collective::kGather:
    case Collective::kScatter:
      break;
  }
  return builder.add_chunk(share);
}

std::vector<ChunkIndex> add_rank_shares(PlanBuilder& builder, std::span<const Rank> order) {
  std::vector<ChunkIndex> chunks(order.size());
  const Plan& plan = builder.plan();
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Share share = share_of(plan.elements, plan.contributors, order[i].value());
    chunks[i] = add_chunk_of(builder, share, order[i]);
  }
  return chunks;
}

std::vector<ChunkIndex> add_parts(PlanBuilder& builder, std::size_t parts) {
  std::vector<ChunkIndex> chunks(parts);
  for (std::size_t i = 0; i < parts; ++i) {
    chunks[i] =
        add_chunk_of(builder, share_of(builder.plan().elements, static_cast<std::int64_t>(parts),
                                       static_cast<std::int64_t>(i)));
  }
  return chunks;
}

std::vector<Rank> ranks_from_root(const topology::Topology& topology, Rank root) {
  std::vector<Rank> order;
  append_from_root(topology, topology::kWholeNetwork, root, order);
  return order;
}

// Block b starts at the member after b and ends at b: in round t, member i passes on block i − 1 −
// t.
void ring_reduce_scatter(PlanBuilder& builder, std::span<const Ring> rings) {
  run_rings(builder, rings, [&](const Ring& ring, std::size_t t) {
    const std::size_t n = ring.members.size();
    for (std::size_t i = 0; i < n; ++i) {
      for (const ChunkIndex chunk : ring.blocks[(i + n + n - 1 - t) % n]) {
        builder.reduce(ring.members[i], ring.members[(i + 1) % n], chunk);
      }
    }
  });
}

// In round t, member i passes on block i − t.
void ring_all_gather(PlanBuilder& builder, std::span<const Ring> rings) {
  run_rings(builder, rings, [&](const Ring& ring, std::size_t t) {
    const std::size_t n = ring.members.size();
    for (std::size_t i = 0; i < n; ++i) {
      for (const ChunkIndex chunk : ring.blocks[(i + n - t) % n]) {
        builder.copy(ring.members[i], ring.members[(i + 1) % n], chunk);
      }
    }
  });
}

Tree chain_tree(std::span<const Rank> ranks, std::vector<ChunkIndex> chunks) {
  Tree tree{.chunks = std::move(chunks), .levels = {}};
  for (std::size_t i = ranks.size(); i-- > 1;) {
    tree.levels.push_back({{.child = ranks[i], .parent = ranks[i - 1]}});
  }
  return tree;
}

void reduce_up(PlanBuilder& builder, std::span<const Tree> trees) {
  const std::size_t height = height_of(trees);
  for (std::size_t level = 0; level < height; ++level) {
    builder.begin_round();
    for (const Tree& tree : trees) {
      if (level >= tree.levels.size()) continue;
      for (const TreeEdge& edge : tree.levels[level]) {
        for (const ChunkIndex chunk : tree.chunks) builder.reduce(edge.child, edge.parent, chunk);
      }
    }
  }
}

void broadcast_down(PlanBuilder& builder, std::span<const Tree> trees) {
  for (std::size_t level = height_of(trees); level-- > 0;) {
    builder.begin_round();
    for (const Tree& tree : trees) {
      if (level >= tree.levels.size()) continue;
      for (const TreeEdge& edge : tree.levels[level]) {
        for (const ChunkIndex chunk : tree.chunks) builder.copy(edge.parent, edge.child, chunk);
      }
    }
  }
}

void run_trees(PlanBuilder& builder, std::span<const Tree> trees) {
  const Collective collective = builder.plan().collective;
  if (collective != Collective::kBroadcast) reduce_up(builder, trees);
  if (collective != Collective::kReduce) broadcast_down(builder, trees);
}

double share_bytes(const PlanRequest& request, std::size_t parts) {
  return static_cast<double>(request.elements) * request.element_bytes / static_cast<double>(parts);
}

OutlineRound ring_round(std::span<const Rank> members, double block) {
  OutlineRound round;
  const std::size_t n = members.size();
  for (std::size_t i = 0; i < n; ++i) {
    round.flows.push_back({.from = members[i], .to = members[(i + 1) % n], .bytes = block});
  }
  round.repeat = static_cast<int>(n) - 1;
  return round;
}

void add_tree_rounds(const Tree& tree, double bytes, std::vector<OutlineRound>& rounds) {
  rounds.resize(std::max(rounds.size(), tree.levels.size()));
  for (std::size_t level = 0; level < tree.levels.size(); ++level) {
    for (const TreeEdge& edge : tree.levels[level]) {
      rounds[level].flows.push_back({.from = edge.child, .to = edge.parent, .bytes = bytes});
    }
  }
}

std::vector<OutlineRound> up_and_down(std::vector<OutlineRound> rounds) {
  std::erase_if(rounds, [](const OutlineRound& round) { return round.empty(); });
  const std::vector<OutlineRound> down = reversed(rounds);
  rounds.insert(rounds.end(), down.begin(), down.end());
  return rounds;
}

}  // namespace thalweg::plan
