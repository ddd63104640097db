#include "plan/accounting.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/check.h"
#include "plan/buckets.h"

namespace thalweg::plan {
namespace {

// Calls visit(from, to, bytes) once for every pair of ranks between which the plan moves anything.
template <class Visit>
void for_each_transfer_pair(const Plan& plan, Visit visit) {
  const auto ranks = static_cast<std::size_t>(plan.ranks);
  const Buckets by_source(plan.transfers.size(), ranks,
                          [&](std::uint32_t i) { return plan.transfers[i].source.index(); });
  std::vector<Bytes> to(ranks);
  std::vector<Rank> touched;
  for (std::size_t source = 0; source < ranks; ++source) {
    touched.clear();
    for (const std::uint32_t i : by_source[source]) {
      const PlanTransfer& t = plan.transfers[i];
      if (to[t.target.index()] == Bytes(0)) touched.push_back(t.target);
      to[t.target.index()] += plan.size_of(t.chunk);
    }
    for (const Rank target : touched) {
      visit(Rank(static_cast<std::int32_t>(source)), target, to[target.index()]);
      to[target.index()] = Bytes(0);
    }
  }
}

// Counts the distinct senders per (rank, step) by sorting: a ring has as many steps as ranks, and a
// table of all pairs would be mostly empty.
int peak_fan_in(const Plan& plan, const PlanProof& proof) {
  static_assert(kMaxPlanRanks <= 1 << 14);
  std::vector<std::uint64_t> keys(plan.transfers.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const PlanTransfer& t = plan.transfers[i];
    keys[i] = static_cast<std::uint64_t>(proof.step_of[i]) << 28 | t.target.index() << 14 |
              t.source.index();
  }
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  int peak = 0;
  for (std::size_t i = 0; i < keys.size();) {
    const std::size_t first = i;
    while (i < keys.size() && keys[i] >> 14 == keys[first] >> 14) ++i;
    peak = std::max(peak, static_cast<int>(i - first));
  }
  return peak;
}

}  // namespace

Bytes Accounting::busiest_arc_bytes() const {
  if (!busiest_arc.valid()) return Bytes(0);
  return Bytes(static_cast<std::int64_t>(std::llround(arc_bytes[busiest_arc.index()])));
}

Status check_fits(const Plan& plan, const topology::Topology& topology) {
  if (plan.ranks == topology.host_count()) return ok_status();
  return Error(
      fmt::format("the plan is for {} ranks, and topology '{}' has {} hosts: they must be "
                  "equally many",
                  plan.ranks, topology.name(), topology.host_count()));
}

void add_crossing(const topology::Topology& topology, Rank from, Rank to, Bytes bytes,
                  Accounting& sum) {
  const topology::RegionId source = topology.region_of(from);
  const topology::RegionId target = topology.region_of(to);
  if (source == target) return;
  sum.cross_region += bytes;
  for (topology::RegionId r = source; !topology.contains(r, target);
       r = topology.region(r).parent) {
    sum.regions[r.index()].out += bytes;
  }
  for (topology::RegionId r = target; !topology.contains(r, source);
       r = topology.region(r).parent) {
    sum.regions[r.index()].in += bytes;
  }
}

void find_busiest(const topology::Topology& topology, Accounting& sum) {
  double slowest = 0;
  for (std::int32_t a = 0; a < static_cast<std::int32_t>(topology.arc_count()); ++a) {
    const topology::ArcId arc(a);
    const double bytes = sum.arc_bytes[arc.index()];
    if (bytes > 0 &&
        (!sum.busiest_arc.valid() || bytes > sum.arc_bytes[sum.busiest_arc.index()] * (1 + 1e-9))) {
      sum.busiest_arc = arc;
    }
    const double seconds = bytes / topology.arc(arc).spec.rate.bytes_per_second();
    if (seconds > slowest * (1 + 1e-9)) {
      slowest = seconds;
      sum.slowest_arc = arc;
    }
  }
  sum.slowest_arc_time = Duration::seconds(slowest);
}

Accounting account(const Plan& plan, const PlanProof& proof, const topology::Topology& topology,
                   const topology::Routing& routing) {
  CHECK(check_fits(plan, topology).ok());
  CHECK(proof.step_of.size() == plan.transfers.size());
  Accounting sum;
  sum.regions.resize(topology.regions().size());
  sum.arc_bytes.resize(topology.arc_count());
  for_each_transfer_pair(plan, [&](Rank from, Rank to, Bytes bytes) {
    sum.total += bytes;
    add_crossing(topology, from, to, bytes, sum);
    for (const topology::ArcShare& share : routing.shares(from, to)) {
      sum.arc_bytes[share.arc.index()] += share.fraction * static_cast<double>(bytes.count());
    }
  });
  find_busiest(topology, sum);
  sum.peak_fan_in = peak_fan_in(plan, proof);
  return sum;
}

}  // namespace thalweg::plan
