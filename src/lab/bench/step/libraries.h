// The rows of `thalweg bench step`: which library and transport moves the gradients, and how.
#pragma once

#include <string>
#include <vector>

#include <thalweg/communicator.h>
#include <thalweg/result.h>

namespace thalweg::lab::step {

// A name is that of a way, and perhaps of what is added to it: "dlcp+bound+priority".
struct Library {
  std::string name;
  bool gloo = false;  // torch.distributed's Gloo; all that follows is ours
  Transport transport = Transport::kTcp;
  std::string scheme = {};      // as `thalweg plan` takes it; empty: chosen by size
  bool knows_topology = false;  // the planner gets the topology
  bool bounded = false;         // loss up to --bound
  bool straggling = false;      // contributions left out up to --straggler-bound
  bool prioritized = false;     // front layers go first
};

// The ways that --libraries takes, without what may be added to them.
[[nodiscard]] std::vector<std::string> own_ways();
// The names that --against takes.
[[nodiscard]] std::vector<std::string> peers();

// Finds the library of this name, a peer's or ours. The error lists what is allowed.
[[nodiscard]] Result<Library> library_of(const std::string& name);

}  // namespace thalweg::lab::step
