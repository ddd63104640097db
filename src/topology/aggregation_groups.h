// Where the gradients of a job can be summed on their way to its servers (the ATP paper, sections
// 4.1 and 5.1): only at edge switches, which are the same whatever paths packets take in between.
//
// The first level is the switch of a worker's rack; the workers of a rack whose switch aggregates
// are one group (several groups, if there are more workers than one group holds). The second level
// is a server's switch, which waits for all groups. A worker whose own switch does not aggregate is
// a group of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "topology/topology.h"

namespace thalweg::topology {

struct AggregationLimits {
  std::size_t workers = 32;  // per group
  std::size_t groups = 32;
};

struct AggregationGroups {
  struct Worker {
    std::size_t group = 0;
    std::size_t index = 0;     // in the group
    bool first_level = false;  // its own switch aggregates
  };
  struct Site {
    NodeId node;
    std::vector<std::size_t> groups;  // groups whose first level it is
    bool second_level = false;        // it is a server's switch and joins groups
  };
  std::vector<Worker> workers;       // in the order in which they were given
  std::vector<std::size_t> members;  // number of workers of each group
  std::vector<Site> sites;           // switches with something to do
};

// The switch that a host is attached to. Fails if the host has several links or a link to a host.
Result<NodeId> edge_switch_of(const Topology& topology, Rank host);

// `aggregates` returns whether a switch aggregates. Fails if there are no workers or too many, or
// if a host has no edge switch.
Result<AggregationGroups> aggregation_groups(const Topology& topology,
                                             const std::vector<Rank>& workers,
                                             const std::vector<Rank>& servers,
                                             const std::function<bool(NodeId)>& aggregates,
                                             const AggregationLimits& limits = {});

}  // namespace thalweg::topology
