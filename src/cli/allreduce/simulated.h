// What the simulator says of an allreduce that `thalweg bench allreduce` measures.
#pragma once

#include <string>

#include <thalweg/result.h>

#include "base/units.h"
#include "topology/topology.h"

namespace thalweg::allreduce {

struct SimulatedCall {
  std::string transport;  // tcp or dlcp
  std::string scheme;     // as `thalweg plan` takes it
  Bytes size;
  double loss = 0;   // of what arrives at every host
  double bound = 0;  // of DLCP's loss
};

// Median time of some calls one after the other, on the same network. Switches have the buffers of
// the emulated network; a processor and a kernel cost nothing.
Result<Duration> simulate(const Topology& topology, const SimulatedCall& call);

}  // namespace thalweg::allreduce
