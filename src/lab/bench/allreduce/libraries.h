// The libraries that `thalweg bench allreduce` can measure, and how their ranks are started.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>
#include <thalweg/types.h>

#include "lab/bench/allreduce/crew.h"
#include "topology/topology.h"

namespace thalweg::lab::allreduce {

// The work that is the same for all libraries.
struct Work {
  int ranks = 2;
  DType type = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
};

// The names that --transport takes.
[[nodiscard]] std::vector<std::string> own_transports();
// The names that --against takes.
[[nodiscard]] std::vector<std::string> peer_names();

// How our own ranks do the work.
struct OwnSettings {
  std::string transport = "tcp";
  std::string scheme = {};                       // empty: chosen by size
  const topology::Topology* topology = nullptr;  // what the planner gets to know; null: nothing
  double bound = 0;                              // of DLCP's loss; above 0 only for sums of floats
  double rate_gbps = 0;  // of the links, from which DLCP starts; 0: not known
  int streams = 1;       // TCP streams for each pair of devices
};
// How our own ranks are started.
[[nodiscard]] Result<CrewPlan> own_plan(const Stage& stage, const Work& work,
                                        const OwnSettings& settings);

// How the ranks of the peer of this name are started. If all ranks are on one host, Open MPI gives
// two plans: over TCP and over its shared memory.
[[nodiscard]] Result<std::vector<CrewPlan>> peer_plans(const Stage& stage, const Work& work,
                                                       const std::string& name);

}  // namespace thalweg::lab::allreduce
