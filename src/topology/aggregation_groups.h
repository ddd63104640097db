// Where the gradients of a job can be summed on their way to its servers (papers/atp.txt, sections
// 4.1 and 5.1): only at edge switches, which are the same whatever paths packets take in between.
//
// The first level is the switch of a worker's rack; the workers of a rack whose switch aggregates
// are a group (several, where there are more than a group holds). The second level is a server's
// switch, which waits for all groups. A worker whose own switch does not aggregate is a group of
// its own.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "topology/topology.h"

namespace thalweg {

struct AggregationLimits {
  std::size_t workers = 32;  // of a group
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
    std::vector<std::size_t> groups;  // whose first level it is
    bool second_level = false;        // a server's switch, and there are groups to be joined there
  };
  std::vector<Worker> workers;       // as they were given
  std::vector<std::size_t> members;  // workers of each group
  std::vector<Site> sites;           // switches that have something to do
};

// The switch that a host hangs on; an error if it has several links or hangs on another host.
Result<NodeId> edge_switch_of(const Topology& topology, Rank host);

// `aggregates` says of a switch whether it does. Errors: no workers, too many, or a host without an
// edge switch.
Result<AggregationGroups> aggregation_groups(const Topology& topology,
                                             const std::vector<Rank>& workers,
                                             const std::vector<Rank>& servers,
                                             const std::function<bool(NodeId)>& aggregates,
                                             const AggregationLimits& limits = {});

}  // namespace thalweg
