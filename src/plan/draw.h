// Drawings of a plan on its topology, for people: an SVG picture, and Graphviz text.
#pragma once

#include <string>
#include <vector>

#include "plan/accounting.h"
#include "plan/plan.h"
#include "plan/verify.h"
#include "topology/topology.h"

namespace thalweg {

// Above this many hosts a drawing shows regions as one box each, and says so.
inline constexpr int kMaxDrawnHosts = 64;

struct DrawOptions {
  // How many trees (chunks) are drawn, at most, each in a panel of its own.
  int max_panels = 4;
  // Which; ids beyond the plan's chunks are left out. Empty: the first whose transfers run between
  // different hosts than those of the panels before.
  std::vector<ChunkIndex> chunks;
};

// The network in tiers with the load of every link, and below it, a panel a tree: hosts as columns,
// steps as rows, transfers as arrows. Self-contained. Requires a verified plan whose ranks are
// hosts of the topology, its proof and its accounting there.
std::string plan_to_svg(const Plan& plan, const PlanProof& proof, const Topology& topology,
                        const Accounting& accounting, const DrawOptions& options);

// The same trees for Graphviz's dot: a cluster a tree, in it the regions as nested clusters; the
// number on an arrow is its step.
std::string plan_to_dot(const Plan& plan, const PlanProof& proof, const Topology& topology,
                        const DrawOptions& options);

}  // namespace thalweg
