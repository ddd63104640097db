// The libraries that `thalweg bench allreduce` can measure, and how their ranks are started.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>
#include <thalweg/types.h>

#include "cli/allreduce/crew.h"
#include "topology/topology.h"

namespace thalweg::allreduce {

// What is the same for all.
struct Work {
  int ranks = 2;
  DType type = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
};

// Names that --transport takes.
[[nodiscard]] std::vector<std::string> own_transports();
// Names that --against takes.
[[nodiscard]] std::vector<std::string> peer_names();

// How our own ranks go about it.
struct OwnSettings {
  std::string transport = "tcp";
  std::string scheme = {};             // empty: chosen by size
  const Topology* topology = nullptr;  // what the planner is to know of the network
  double bound = 0;                    // of DLCP's loss; requires a sum of floats
  double rate_gbps = 0;                // of the links, where it is known; DLCP starts from it
  int streams = 1;                     // of TCP, for each pair of devices
};
// Our own ranks.
[[nodiscard]] Result<CrewPlan> own_plan(const Stage& stage, const Work& work,
                                        const OwnSettings& settings);

// The peer of this name; Open MPI, where all ranks are on one host, with its shared memory too.
[[nodiscard]] Result<std::vector<CrewPlan>> peer_plans(const Stage& stage, const Work& work,
                                                       const std::string& name);

}  // namespace thalweg::allreduce
