// How many bytes a plan moves over the network, counted from its transfers, not from formulas.
#pragma once

#include <vector>

#include "plan/plan.h"
#include "plan/verify.h"
#include "topology/routing.h"

namespace thalweg::plan {

struct RegionTraffic {
  Bytes in;
  Bytes out;
};

struct Accounting {
  Bytes total;  // sum over all transfers
  // Sum over the transfers between hosts of different innermost regions.
  Bytes cross_region;
  // Per region: the bytes that transfers carry over its boundary.
  std::vector<RegionTraffic> regions;
  // Bytes per arc, with flows split evenly over equal-cost paths.
  std::vector<double> arc_bytes;
  topology::ArcId busiest_arc;  // the arc with the most bytes; invalid if nothing moves
  topology::ArcId slowest_arc;  // the arc that needs the longest for its bytes
  Duration slowest_arc_time;    // how long that takes: no schedule of this plan is faster
  // The most ranks that send to one rank in the same step.
  int peak_fan_in = 0;

  [[nodiscard]] Bytes busiest_arc_bytes() const;
};

// Fails unless the plan has one rank per host of the topology.
Status check_fits(const Plan& plan, const topology::Topology& topology);

// Counts bytes from one rank to another where they leave and enter regions.
void add_crossing(const topology::Topology& topology, Rank from, Rank to, Bytes bytes,
                  Accounting& sum);
// Finds the busiest and the slowest arc by `arc_bytes`.
void find_busiest(const topology::Topology& topology, Accounting& sum);

// Requires the plan's own proof and a topology that the plan fits.
Accounting account(const Plan& plan, const PlanProof& proof, const topology::Topology& topology,
                   const topology::Routing& routing);

}  // namespace thalweg::plan
