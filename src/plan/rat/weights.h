// Weights for the trees of RAT on a network that is not symmetric (the paper's future work): they
// make the most loaded link as little loaded as possible.
//
// There are far too many trees to weigh one by one (32 racks of 32 hosts have 32^32 · 32), but a
// link's load depends only on how large a part of the tensor each host aggregates for each of its
// groups. These parts are the variables of a linear program: for every group they sum to 1, and a
// host can aggregate for a group only what it aggregates for its child group. Afterwards the parts
// are cut into trees, about two per host.
//
// Where a group's hosts reach the outside over different switches, the load of the links between
// switches also depends on which hosts aggregate at the same time; there the average over the
// group's hosts is used instead.
#pragma once

#include <optional>
#include <vector>

#include "plan/rat/trees.h"
#include "topology/routing.h"

namespace thalweg::plan {

// parts[group][i]: the part of the tensor that groups[group].all_hosts[i] aggregates.
using RatParts = std::vector<std::vector<double>>;

// The parts that equal weights for all trees give.
RatParts uniform_parts(const std::vector<RatGroup>& groups);

// The parts that minimise the time of the slowest link. If several do, those nearest to the uniform
// parts; exactly the uniform parts if these are among the best. Fails if there are more than
// kMaxWeightedHosts.
inline constexpr int kMaxWeightedHosts = 2048;
Result<RatParts> best_parts(const std::vector<RatGroup>& groups, const topology::Topology& topology,
                            const topology::Routing& routing);

// Trees whose weights add up to these parts; none is lighter than `least_weight`.
std::vector<RatTree> trees_from_parts(const std::vector<RatGroup>& groups, const RatParts& parts,
                                      double least_weight);

}  // namespace thalweg::plan
