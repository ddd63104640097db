// Where the workers of a job are: in racks, racks in pods, and so on, as DS-Sync divides them.
//
// A region's members are its child regions, in order, then the workers directly in it. Regions of
// the network that hold no worker, or only one child, are left out, because they do not divide the
// workers.
//
// Invariants (the makers check them):
// 1. Workers are 0 … worker_count()−1, each in exactly one region; there are at least two.
// 2. Region 0 is the root. It has at least two members; every other region at least one.
// 3. A child stands after its parent in regions().
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "topology/topology.h"

namespace thalweg::sync {

inline constexpr int kMaxSyncWorkers = 8192;

struct WorkerRegion {
  std::string name;
  int parent = -1;            // -1 for the root
  std::vector<int> children;  // indices in regions()
  std::vector<Rank> workers;  // directly in it
  [[nodiscard]] std::size_t member_count() const { return children.size() + workers.size(); }
};

class WorkerTree {
 public:
  // Rack i is named "rack<i>". An error names a worker that is missing, doubled or out of range.
  static Result<WorkerTree> from_racks(const std::vector<std::vector<Rank>>& racks);
  // The first `sizes[0]` workers are in rack 0, and so on.
  static Result<WorkerTree> from_rack_sizes(std::span<const int> sizes);
  // Worker i is host i; the regions are those of the topology.
  static Result<WorkerTree> from_topology(const topology::Topology& topology);

  [[nodiscard]] int worker_count() const { return static_cast<int>(region_of_.size()); }
  [[nodiscard]] std::span<const WorkerRegion> regions() const { return regions_; }
  [[nodiscard]] int region_of(Rank worker) const { return region_of_[worker.index()]; }
  // An error lists the names. The root is not among them, because no link leaves it.
  [[nodiscard]] Result<int> find(std::string_view name) const;

 private:
  WorkerTree() = default;
  int add(std::string name, int parent);
  Status finish();

  std::vector<WorkerRegion> regions_;
  std::vector<int> region_of_;  // [worker]
};

}  // namespace thalweg::sync
