#include "plan/rat/trees.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "base/check.h"

namespace thalweg::plan {
namespace {

using Groups = std::vector<RatGroup>;
// For every group the number of the member that provides its aggregator; its own hosts are counted
// first, then its children.
using Picks = std::vector<std::optional<std::size_t>>;

bool aggregates(const topology::Topology& topology, topology::RegionId region, RatRegions regions) {
  return region == topology::kWholeNetwork || regions == RatRegions::kAll ||
         topology.region(region).oversubscription > 1;
}

// Adds the groups of a region and of all regions below it to `groups`. If the region gets no group
// of its own, because it does not aggregate or has only one member, its members become those of
// `outer`.
void add_groups(const topology::Topology& topology, topology::RegionId id, RatRegions regions,
                const std::vector<std::vector<Rank>>& own_hosts, RatGroup& outer, Groups& groups) {
  RatGroup group;
  group.region = id;
  group.hosts = own_hosts[id.index()];
  for (const topology::RegionId child : topology.region(id).children) {
    add_groups(topology, child, regions, own_hosts, group, groups);
  }
  const bool stands = id == topology::kWholeNetwork ||
                      (group.member_count() > 1 && aggregates(topology, id, regions));
  if (!stands) {
    outer.hosts.insert(outer.hosts.end(), group.hosts.begin(), group.hosts.end());
    outer.children.insert(outer.children.end(), group.children.begin(), group.children.end());
    return;
  }
  std::sort(group.hosts.begin(), group.hosts.end());
  group.all_hosts = group.hosts;
  group.height = 1;
  for (const std::size_t child : group.children) {
    const RatGroup& inner = groups[child];
    group.all_hosts.insert(group.all_hosts.end(), inner.all_hosts.begin(), inner.all_hosts.end());
    group.height = std::max(group.height, inner.height + 1);
  }
  std::sort(group.all_hosts.begin(), group.all_hosts.end());
  outer.children.push_back(groups.size());
  groups.push_back(std::move(group));
}

RatTree tree_of(const Groups& groups, const Picks& picks) {
  RatTree tree;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::size_t pick = *picks[g];
    const std::size_t own = groups[g].hosts.size();
    tree.aggregators.push_back(pick < own ? groups[g].hosts[pick]
                                          : tree.aggregators[groups[g].children[pick - own]]);
  }
  return tree;
}

// Sets the picks that make `root` the aggregator of every group it is in; the others stay empty.
Picks picks_for_root(const Groups& groups, Rank root) {
  Picks picks(groups.size());
  if (!root.valid()) return picks;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const RatGroup& group = groups[g];
    const auto host = std::find(group.hosts.begin(), group.hosts.end(), root);
    if (host != group.hosts.end()) {
      picks[g] = static_cast<std::size_t>(host - group.hosts.begin());
    }
    for (std::size_t c = 0; c < group.children.size(); ++c) {
      if (picks[group.children[c]]) picks[g] = group.hosts.size() + c;
    }
  }
  return picks;
}

void give_equal_weights(std::vector<RatTree>& trees) {
  for (RatTree& tree : trees) tree.weight = 1.0 / static_cast<double>(trees.size());
}

}  // namespace

std::vector<RatGroup> rat_groups(const topology::Topology& topology, RatRegions regions) {
  std::vector<std::vector<Rank>> own_hosts(topology.regions().size());
  for (Rank r(0); r.value() < topology.host_count(); ++r) {
    own_hosts[topology.region_of(r).index()].push_back(r);
  }
  Groups groups;
  RatGroup nothing_outside;
  add_groups(topology, topology::kWholeNetwork, regions, own_hosts, nothing_outside, groups);
  return groups;
}

std::int32_t count_trees(const std::vector<RatGroup>& groups, Rank root) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const Picks fixed = picks_for_root(groups, root);
  std::int64_t count = 1;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (!fixed[g])
      count = std::min(kMost, count * static_cast<std::int64_t>(groups[g].member_count()));
  }
  return static_cast<std::int32_t>(count);
}

std::vector<RatTree> all_trees(const std::vector<RatGroup>& groups, Rank root) {
  const Picks fixed = picks_for_root(groups, root);
  std::vector<RatTree> trees;
  for (std::int32_t i = 0; i < count_trees(groups, root); ++i) {
    // The free picks are the digits of i; the lowest digit is the top group's.
    Picks picks = fixed;
    auto rest = static_cast<std::size_t>(i);
    for (std::size_t g = groups.size(); g-- > 0;) {
      if (picks[g]) continue;
      picks[g] = rest % groups[g].member_count();
      rest /= groups[g].member_count();
    }
    trees.push_back(tree_of(groups, picks));
  }
  give_equal_weights(trees);
  return trees;
}

std::vector<RatTree> rotated_trees(const std::vector<RatGroup>& groups, int count, Rank root) {
  CHECK(count > 0);
  const std::vector<Rank>& hosts = groups.back().all_hosts;
  // How often each member has been picked, and each host has been its group's aggregator. Members
  // alone would not do: a rack whose hosts take turns and a pod whose racks take turns always meet
  // in the same hosts.
  std::vector<std::vector<int>> used;
  std::vector<std::vector<int>> served;
  used.reserve(groups.size());
  served.reserve(groups.size());
  for (const RatGroup& group : groups) {
    used.emplace_back(group.member_count(), 0);
    served.emplace_back(group.all_hosts.size(), 0);
  }
  const auto place_of = [&](std::size_t g, Rank host) {
    const std::vector<Rank>& all = groups[g].all_hosts;
    return static_cast<std::size_t>(std::ranges::lower_bound(all, host) - all.begin());
  };
  std::vector<RatTree> trees;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const std::size_t turn = i * hosts.size() / static_cast<std::size_t>(count) % hosts.size();
    Picks picks = picks_for_root(groups, root.valid() ? root : hosts[turn]);
    RatTree tree;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const auto host_of = [&](std::size_t member) {
        const std::size_t own = groups[g].hosts.size();
        return member < own ? groups[g].hosts[member]
                            : tree.aggregators[groups[g].children[member - own]];
      };
      if (!picks[g]) {
        std::pair least(std::numeric_limits<int>::max(), std::numeric_limits<int>::max());
        for (std::size_t member = 0; member < used[g].size(); ++member) {
          const std::pair now(used[g][member], served[g][place_of(g, host_of(member))]);
          if (now >= least) continue;
          least = now;
          picks[g] = member;
        }
      }
      ++used[g][*picks[g]];
      tree.aggregators.push_back(host_of(*picks[g]));
      ++served[g][place_of(g, tree.aggregators.back())];
    }
    trees.push_back(std::move(tree));
  }
  give_equal_weights(trees);
  return trees;
}

Tree edges_of(const RatTree& tree, const std::vector<RatGroup>& groups,
              std::vector<ChunkIndex> chunks) {
  Tree result{.chunks = std::move(chunks), .levels = {}};
  result.levels.resize(static_cast<std::size_t>(groups.back().height));
  for (std::size_t g = 0; g < groups.size(); ++g) {
    auto& level = result.levels[static_cast<std::size_t>(groups[g].height) - 1];
    const Rank aggregator = tree.aggregators[g];
    const auto add = [&](Rank member) {
      if (member != aggregator) level.push_back({.child = member, .parent = aggregator});
    };
    for (const Rank host : groups[g].hosts) add(host);
    for (const std::size_t child : groups[g].children) add(tree.aggregators[child]);
  }
  return result;
}

}  // namespace thalweg::plan
