// How many frames a second this machine can carry through a testbed's network.
#pragma once

#include <cstddef>
#include <span>

#include <thalweg/result.h>

#include "sim/core/network.h"
#include "topology/topology.h"

namespace thalweg::lab {

// Measures the frames per second that the testbed's thread can carry, by the best of many batches.
// Sends datagrams from host 0 through `socket`, reads them from the host's `device`, carries each
// through a fabric to host 1, and writes it back to the same device. The socket must be bound to a
// port of host 0, and the device must not be shaped. Takes some milliseconds.
Result<double> measure_frames_per_second(const topology::Topology& topology,
                                         const sim::NetworkOptions& options, std::size_t mtu,
                                         int device, int socket);

// The frames per second that all hosts together can send: frames of full length, and one
// acknowledgement for every second frame. `rates`: of the links, by number.
double frames_needed(const topology::Topology& topology, std::span<const Bandwidth> rates,
                     std::size_t mtu);

}  // namespace thalweg::lab
