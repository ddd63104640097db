// What a plan costs the network, counted from its transfers, not from formulas.
#pragma once

#include <vector>

#include "plan/plan.h"
#include "plan/verify.h"
#include "topology/routing.h"

namespace thalweg {

struct RegionTraffic {
  Bytes in;
  Bytes out;
};

struct Accounting {
  Bytes total;  // sum over all transfers
  // Sum over the transfers between hosts of different innermost regions.
  Bytes cross_region;
  // Per region: what transfers carry over its boundary.
  std::vector<RegionTraffic> regions;
  // Per arc, with flows split evenly over equal-cost paths.
  std::vector<double> arc_bytes;
  ArcId busiest_arc;          // the arc with the most bytes; invalid if nothing moves
  ArcId slowest_arc;          // the arc that needs the longest for its bytes
  Duration slowest_arc_time;  // how long: no schedule of this plan is faster
  // The most ranks that send to one rank in the same step.
  int peak_fan_in = 0;

  [[nodiscard]] Bytes busiest_arc_bytes() const;
};

// A plan runs on a topology if it has one rank a host.
Status check_fits(const Plan& plan, const Topology& topology);

// Requires the plan's own proof and a topology it fits.
Accounting account(const Plan& plan, const PlanProof& proof, const Topology& topology,
                   const Routing& routing);

}  // namespace thalweg
