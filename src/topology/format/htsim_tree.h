// The network that an htsim file describes.
#pragma once

#include <cstdint>
#include <string>

#include "topology/topology.h"

namespace thalweg::topology {

// Pods of ToRs; each ToR has links to all upper switches of its pod. With three tiers the u-th
// upper switch of every pod has links to the cores u, u + uppers, u + 2·uppers, …; with two tiers
// there is one pod and no core. Two switches that are joined have `bundle` parallel links.
struct HtsimTree {
  std::int64_t tiers = 2;  // 2 or 3
  std::int64_t pods = 1;
  std::int64_t tors = 0;    // per pod
  std::int64_t hosts = 0;   // per ToR
  std::int64_t uppers = 0;  // per pod: aggregation switches, or the spines
  std::int64_t upper_bundle = 1;
  std::int64_t cores_an_upper = 0;
  std::int64_t core_bundle = 1;
  LinkSpec host_link;
  LinkSpec upper_link;
  LinkSpec core_link;
};

// Every count must be at most kMaxNodes.
Result<Topology> build_htsim_tree(const HtsimTree& tree, std::string name);

}  // namespace thalweg::topology
