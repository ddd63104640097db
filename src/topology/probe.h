// From what hosts measured between each other to a topology that explains it.
//
// Hosts whose round trips (or, if those tell less, whose rates) are alike form regions: average
// linkage, cut where the distance of what is joined next jumps most. One level of regions. The
// measurements come in rounds in which every host is in one pair at most, all pairs at the same
// time; so what crosses a region's border in one round says what its uplink carries.
#pragma once

#include <string>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "topology/topology.h"

namespace thalweg {

// From one host to another.
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
  // (silhouette): 1 is beyond doubt, 0 a guess. For one region: how far the best cut is from
  // convincing.
  double confidence = 0;
  std::string reason;  // in words, with numbers
};

// Every ordered pair of different hosts must be among the samples. At least one host.
Result<ProbedTopology> topology_from_probe(int hosts, const std::vector<ProbeSample>& samples);

}  // namespace thalweg
