// The trees of RAT (the RAT paper, section 3 and algorithm 1).
//
// Every region of the network is a group, and the whole network is the top group. A group's members
// are the hosts that are in no smaller group, and its child groups. A tree picks an aggregator for
// every group: one of its own hosts, or the aggregator of one of its children. The top group's
// aggregator is the root. In the reduce phase each member (for a child group, its aggregator) sends
// to the group's aggregator, lowest groups first; the broadcast phase runs in reverse.
//
// For example, a network of 2 racks of 4 hosts has 4 · 4 · 2 = 32 trees.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/schemes/parts.h"
#include "topology/topology.h"

namespace thalweg::plan {

struct RatGroup {
  topology::RegionId region;
  std::vector<Rank> hosts;            // hosts that are in no child
  std::vector<std::size_t> children;  // indices of groups
  std::vector<Rank> all_hosts;        // its own and its children's, in rank order
  int height = 0;                     // one more than its highest child; 1 without children

  [[nodiscard]] std::size_t member_count() const { return hosts.size() + children.size(); }
};

// Which regions aggregate: all of them, or only those whose uplinks are slower than their hosts.
enum class RatRegions : std::uint8_t { kAll, kOversubscribed };

// Children come before their parents; the top group is last. A group with one member is left out,
// since it has nothing to aggregate.
std::vector<RatGroup> rat_groups(const topology::Topology& topology, RatRegions regions);

// The aggregator of every group, and the fraction of the tensor that this tree carries.
struct RatTree {
  std::vector<Rank> aggregators;  // [group]
  double weight = 0;

  [[nodiscard]] Rank root() const { return aggregators.back(); }
};

// How many trees there are, or how many with this root if it is valid. Saturates at 2^31−1.
std::int32_t count_trees(const std::vector<RatGroup>& groups, Rank root = {});
// All these trees, with equal weights.
std::vector<RatTree> all_trees(const std::vector<RatGroup>& groups, Rank root = {});
// `count` of these trees, with equal weights, that spread the roles evenly: every host is root
// equally often (unless the root is given), and every member aggregates for its group equally
// often, each to within one.
std::vector<RatTree> rotated_trees(const std::vector<RatGroup>& groups, int count, Rank root = {});

// The edges of a tree, by the height of the group they are in.
Tree edges_of(const RatTree& tree, const std::vector<RatGroup>& groups,
              std::vector<ChunkIndex> chunks);

}  // namespace thalweg::plan
