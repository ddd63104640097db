// A Forest: an allreduce by trees, one for each part of the tensor (schemes/parts.h), of which one
// tree at a time is made. RAT on 8,192 hosts has 8,192 trees and 134 million transfers, which would
// take 2.7 GB; one tree takes 64 kB.
//
// A tree is proved by what holds for every tree, and not by executing it (verify.h):
// 1. every rank but one, the top, sends its sum to exactly one other rank;
// 2. a rank sends its sum on a higher level than anything arrives there.
// By 2 whoever follows the sums comes to a higher level with every step and never to the same rank
// twice, so by 1 the way ends at the top: the top adds every contribution once. The result takes
// the same edges back, so every rank gets it once. No rank deadlocks, since levels order all sends.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "plan/planner.h"
#include "plan/schemes/parts.h"
#include "topology/loads.h"

namespace thalweg::plan {

class ForestSurvey {
 public:
  // The topology and the routing must outlive this object.
  ForestSurvey(const topology::Topology& topology, const topology::Routing& routing);

  // Takes the next tree, which carries so many bytes. An error says which rank is wrong.
  Status add(const Tree& tree, Bytes bytes);
  // Fills in proof, accounting and extent. Called once, after all trees.
  void finish(EvaluatedPlan& result);

 private:
  struct Node {
    int arrivals = 0;
    int arrived_at = -1;  // the highest level of an arrival
    int depth = 0;        // transfers on the longest chain that led here
    bool sent = false;
  };

  Status climb(const Tree& tree);
  void count(Rank from, Rank to, Bytes bytes, int step, bool reduces);

  const topology::Topology& topology_;
  topology::ArcLoads loads_;
  std::vector<Node> nodes_;  // [rank], in the tree at hand
  std::vector<std::vector<std::uint64_t>>
      senders_;  // [step − 1]: a bit for every target and source
  PlanExtent extent_;
  Accounting accounting_;
  std::vector<Bytes> staging_;  // [rank]
};

// Evaluates a scheme of trees without holding its plan: the result has no transfers and no fluid
// time. An error if the scheme is not made of trees.
Result<EvaluatedPlan> evaluate_by_trees(std::string_view spec, const PlanRequest& request,
                                        const topology::Routing& routing,
                                        const PlannerOptions& options);

}  // namespace thalweg::plan
