// The time that the simulator predicts for an allreduce that `thalweg bench allreduce` measures.
#pragma once

#include <cstdint>
#include <string>

#include <thalweg/result.h>

#include "base/units.h"
#include "topology/topology.h"

namespace thalweg::lab::allreduce {

// The transport that stands for the kernel's TCP in simulations of sockets: its options are
// Linux's.
inline constexpr const char* kKernelTcp = "{kind: cubic, sack: on, hystart: on, rto_min: 200ms}";

struct SimulatedCall {
  std::string transport;  // tcp or dlcp
  std::string scheme;     // as `thalweg plan` takes it
  Bytes size;
  double loss = 0;   // of the packets that arrive at every host
  double bound = 0;  // of DLCP's loss
  int calls = 11;    // made one after the other
  std::uint64_t seed =
      1;  // of the paths that streams take, where several are equal, and of the loss
};

// The median over the calls of the time of the slowest rank, as the benchmark reports it. Packets
// are forwarded as communicators do. Switches have the buffers of the emulated network. Processors
// and kernels take no time.
Result<Duration> simulate(const topology::Topology& topology, const SimulatedCall& call);

}  // namespace thalweg::lab::allreduce
