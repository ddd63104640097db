#include "sync/worker_tree.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace thalweg::sync {
namespace {

Status check_worker_count(std::size_t workers) {
  if (workers < 2 || workers > static_cast<std::size_t>(kMaxSyncWorkers)) {
    return Error(fmt::format("workers: {} are not allowed: 2 to {}", workers, kMaxSyncWorkers));
  }
  return ok_status();
}

// The region itself, or the one below it that divides its workers: chains of single children are
// skipped.
topology::RegionId dividing_region(const topology::Topology& topology, topology::RegionId id) {
  for (;;) {
    topology::RegionId only;
    int with_hosts = 0;
    std::size_t below = 0;
    for (const topology::RegionId child : topology.region(id).children) {
      if (topology.region(child).hosts.empty()) continue;
      below += topology.region(child).hosts.size();
      only = child;
      ++with_hosts;
    }
    if (with_hosts != 1 || below != topology.region(id).hosts.size()) return id;
    id = only;
  }
}

}  // namespace

int WorkerTree::add(std::string name, int parent) {
  const auto index = static_cast<int>(regions_.size());
  regions_.push_back({.name = std::move(name), .parent = parent, .children = {}, .workers = {}});
  if (parent >= 0) regions_[static_cast<std::size_t>(parent)].children.push_back(index);
  return index;
}

Status WorkerTree::finish() {
  std::size_t count = 0;
  for (const WorkerRegion& region : regions_) count += region.workers.size();
  THALWEG_TRY_STATUS(check_worker_count(count));
  region_of_.assign(count, -1);
  for (std::size_t r = 0; r < regions_.size(); ++r) {
    for (const Rank worker : regions_[r].workers) {
      if (!worker.valid() || worker.index() >= count) {
        return Error(fmt::format("{}: worker {} is not allowed: 0 to {}", regions_[r].name,
                                 worker.value(), count - 1));
      }
      if (int& region = region_of_[worker.index()]; region < 0) {
        region = static_cast<int>(r);
      } else {
        return Error(fmt::format("worker {} is named twice: in {} and in {}", worker.value(),
                                 regions_[static_cast<std::size_t>(region)].name,
                                 regions_[r].name));
      }
    }
  }
  return ok_status();
}

Result<WorkerTree> WorkerTree::from_racks(const std::vector<std::vector<Rank>>& racks) {
  WorkerTree tree;
  const int root = tree.add("", -1);
  for (std::size_t i = 0; i < racks.size(); ++i) {
    std::string name = fmt::format("rack{}", i);
    if (racks[i].empty()) {
      return Error(fmt::format("{}: 0 workers are not allowed: 1 or more", name));
    }
    const int rack = racks.size() == 1 ? root : tree.add(name, root);
    tree.regions_[static_cast<std::size_t>(rack)].name = name;
    tree.regions_[static_cast<std::size_t>(rack)].workers = racks[i];
  }
  THALWEG_TRY_STATUS(tree.finish());
  return tree;
}

Result<WorkerTree> WorkerTree::from_rack_sizes(std::span<const int> sizes) {
  std::vector<std::vector<Rank>> racks;
  std::int32_t next = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 1 || sizes[i] > kMaxSyncWorkers) {
      return Error(
          fmt::format("rack{}: {} workers are not allowed: 1 to {}", i, sizes[i], kMaxSyncWorkers));
    }
    if (next > kMaxSyncWorkers) break;  // too many already: from_racks() reports it
    racks.emplace_back();
    for (int w = 0; w < sizes[i]; ++w) racks.back().emplace_back(next++);
  }
  return from_racks(racks);
}

Result<WorkerTree> WorkerTree::from_topology(const topology::Topology& topology) {
  WorkerTree tree;
  struct Place {
    topology::RegionId region;
    int parent;
  };
  std::vector<Place> open{{dividing_region(topology, topology::kWholeNetwork), -1}};
  // Breadth first, so that parents come before their children.
  for (std::size_t i = 0; i < open.size(); ++i) {
    const topology::RegionId id = open[i].region;
    const topology::Region& region = topology.region(id);
    const int index = tree.add(region.name, open[i].parent);
    for (const Rank host : region.hosts) {
      if (topology.region_of(host) == id) {
        tree.regions_[static_cast<std::size_t>(index)].workers.push_back(host);
      }
    }
    for (const topology::RegionId child : region.children) {
      if (topology.region(child).hosts.empty()) continue;
      open.push_back({dividing_region(topology, child), index});
    }
  }
  THALWEG_TRY_STATUS(tree.finish());
  return tree;
}

Result<int> WorkerTree::find(std::string_view name) const {
  std::vector<std::string_view> names;
  for (std::size_t r = 1; r < regions_.size(); ++r) {
    if (regions_[r].name == name) return static_cast<int>(r);
    names.push_back(regions_[r].name);
  }
  return Error(
      fmt::format("'{}' is not a region of the workers: {}", name,
                  names.empty() ? "there is none" : fmt::format("{}", fmt::join(names, ", "))));
}

}  // namespace thalweg::sync
