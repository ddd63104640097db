// Drawings of a plan on its topology, for people: an SVG picture and Graphviz text.
#pragma once

#include <string>
#include <vector>

#include "plan/accounting.h"
#include "plan/plan.h"
#include "plan/verify.h"
#include "topology/topology.h"

namespace thalweg::plan {

// With more hosts than this, a drawing shows each region as one box, and says so.
inline constexpr int kMaxDrawnHosts = 64;

struct DrawOptions {
  // The most trees (chunks) that are drawn, each in a panel of its own.
  int max_panels = 4;
  // The chunks to draw; ids beyond the plan's chunks are ignored. Empty: the first chunks whose
  // transfers run between other hosts than those of the panels before.
  std::vector<ChunkIndex> chunks;
};

// Draws the network in tiers with the load of every link, and below it one panel per tree: hosts as
// columns, steps as rows, transfers as arrows. The picture needs no other files. Requires a
// verified plan whose ranks are hosts of the topology, its proof and its accounting there.
std::string plan_to_svg(const Plan& plan, const PlanProof& proof,
                        const topology::Topology& topology, const Accounting& accounting,
                        const DrawOptions& options);

// Writes the same trees for Graphviz's dot: one cluster per tree, with the regions as nested
// clusters in it. The number on an arrow is its step.
std::string plan_to_dot(const Plan& plan, const PlanProof& proof,
                        const topology::Topology& topology, const DrawOptions& options);

}  // namespace thalweg::plan
