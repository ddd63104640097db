// What several schemes are made of: rings, trees, and the order of the ranks on them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "plan/builder.h"
#include "plan/plan.h"
#include "topology/topology.h"

namespace thalweg {

// Adds a chunk with the ends that the plan's collective asks for: the root of a reduce or a
// broadcast, `home` of a reduce-scatter or an all-gather, none of an allreduce.
ChunkIndex add_chunk_of(PlanBuilder& builder, Share share, Rank home = {});
// Chunk i is the share of order[i].
std::vector<ChunkIndex> add_rank_shares(PlanBuilder& builder, std::span<const Rank> order);
// `parts` nearly equal chunks that make up the tensor.
std::vector<ChunkIndex> add_parts(PlanBuilder& builder, std::size_t parts);

// The hosts in region order, with the root first and every region that holds it before its
// siblings: a tree or chain from the root enters each region once.
std::vector<Rank> ranks_from_root(const Topology& topology, Rank root);

// A ring of ranks. blocks[i], any number of chunks, is reduced to members[i] by a reduce-scatter
// and starts from there in an all-gather. Each takes members.size() − 1 rounds, in which every
// member passes one block to the next member.
//
// The chunks of a block go to the same rank in the same round, one after the other in the plan:
// on a network they are one message.
struct Ring {
  std::vector<Rank> members;
  std::vector<std::vector<ChunkIndex>> blocks;
};
// The rings run side by side; no rank may have the same chunk on two of them.
void ring_reduce_scatter(PlanBuilder& builder, std::span<const Ring> rings);
void ring_all_gather(PlanBuilder& builder, std::span<const Ring> rings);

// A tree of ranks that carries some chunks. levels[0] holds the lowest edges: an edge stands on a
// higher level than every edge into its child.
struct TreeEdge {
  Rank child;
  Rank parent;
};
struct Tree {
  std::vector<ChunkIndex> chunks;
  std::vector<std::vector<TreeEdge>> levels;
};
// ranks[0] is the top; each other rank's parent is the one before it.
Tree chain_tree(std::span<const Rank> ranks, std::vector<ChunkIndex> chunks);
// The trees run side by side; no rank may have the same chunk on two of them.
void reduce_up(PlanBuilder& builder, std::span<const Tree> trees);
void broadcast_down(PlanBuilder& builder, std::span<const Tree> trees);
// Up for a reduce, down for a broadcast, up and down for an allreduce.
void run_trees(PlanBuilder& builder, std::span<const Tree> trees);

}  // namespace thalweg
