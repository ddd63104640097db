// What several schemes share: rings, trees, and the order of the ranks on them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "plan/builder.h"
#include "plan/outline.h"
#include "plan/plan.h"
#include "plan/scheme.h"
#include "topology/topology.h"

namespace thalweg::plan {

// Adds a chunk with the ends that the plan's collective needs: the root for a reduce or a
// broadcast, `home` for a reduce-scatter or an all-gather, none for an allreduce.
ChunkIndex add_chunk_of(PlanBuilder& builder, Share share, Rank home = {});
// Adds one chunk per rank; chunk i is the share of order[i].
std::vector<ChunkIndex> add_rank_shares(PlanBuilder& builder, std::span<const Rank> order);
// Adds `parts` nearly equal chunks that make up the tensor.
std::vector<ChunkIndex> add_parts(PlanBuilder& builder, std::size_t parts);

// The hosts in region order, with the root first and every region that holds it before its
// siblings, so that a tree or chain from the root enters each region once.
std::vector<Rank> ranks_from_root(const topology::Topology& topology, Rank root);

// A ring of ranks. A reduce-scatter reduces blocks[i], any number of chunks, to members[i], and an
// all-gather starts it from there. Each takes members.size() − 1 rounds, in which every member
// passes one block to the next member.
//
// The chunks of a block go to the same rank in the same round, one after the other in the plan: on
// a network they are one message.
struct Ring {
  std::vector<Rank> members;
  std::vector<std::vector<ChunkIndex>> blocks;
};
// The rings run side by side; no rank may have the same chunk on two of them.
void ring_reduce_scatter(PlanBuilder& builder, std::span<const Ring> rings);
void ring_all_gather(PlanBuilder& builder, std::span<const Ring> rings);

// A tree of ranks that carries some chunks. levels[0] holds the lowest edges: an edge is on a
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
// Runs up for a reduce, down for a broadcast, and up and down for an allreduce.
void run_trees(PlanBuilder& builder, std::span<const Tree> trees);

// For outlines: the bytes of one of `parts` equal shares of the tensor.
double share_bytes(const PlanRequest& request, std::size_t parts);
// The rounds of a ring in which every member passes a block of so many bytes to the next: a
// reduce-scatter, or an all-gather.
OutlineRound ring_round(std::span<const Rank> members, double block);
// The rounds in which trees reduce: one for each level. `bytes` travel over every edge.
void add_tree_rounds(const Tree& tree, double bytes, std::vector<OutlineRound>& rounds);
// The rounds followed by their reverse.
std::vector<OutlineRound> up_and_down(std::vector<OutlineRound> rounds);

}  // namespace thalweg::plan
