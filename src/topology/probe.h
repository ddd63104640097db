// Derives a topology from what hosts measured between each other.
//
// Hosts whose round trips (or rates, if those tell more) are alike form regions: average linkage,
// cut where the distance of what is joined next jumps most. There is one level of regions. The
// measurements come in rounds in which every host is in at most one pair, and all pairs measure at
// the same time; so the traffic that crosses a region's border in one round shows what its uplink
// carries.
#pragma once

#include <string>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "topology/topology.h"

namespace thalweg::topology {

// One measurement from one host to another.
struct ProbeSample {
  int round = 0;
  int from = 0;
  int to = 0;
  Duration round_trip;
  Bandwidth rate;
};

struct ProbedTopology {
  Topology topology;
  std::vector<int> region_of;  // [host]
  int regions = 1;
  std::string by;  // what tells the regions apart: "round trips", "rates", or "" for one region
  // How much nearer a host is to its own region than to the next, averaged over the hosts
  // (silhouette): 1 is beyond doubt, 0 is a guess. For one region: how far the best cut is from
  // convincing.
  double confidence = 0;
  std::string reason;  // in words, with numbers
};

// Requires at least one host, and a sample for every ordered pair of different hosts.
Result<ProbedTopology> topology_from_probe(int hosts, const std::vector<ProbeSample>& samples);

}  // namespace thalweg::topology
