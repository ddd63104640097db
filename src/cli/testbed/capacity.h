// How many frames a second this machine can carry through a testbed's network.
#pragma once

#include <cstddef>
#include <span>

#include <thalweg/result.h>

#include "sim/network.h"
#include "topology/topology.h"

namespace thalweg {

// Sends datagrams from host 0 by `socket`, reads them from its `device`, carries each to host 1
// through a fabric as in use, and writes it back to the same device: what a frame costs the
// testbed's thread, of the best of many batches. The socket is bound to a port of host 0; the
// device is not shaped. Some milliseconds.
Result<double> measure_frames_per_second(const Topology& topology, const NetworkOptions& options,
                                         std::size_t mtu, int device, int socket);

// Frames of full length that all hosts together can send, and an acknowledgement for every second
// one. `rates`: of the links, by number.
double frames_needed(const Topology& topology, std::span<const Bandwidth> rates, std::size_t mtu);

}  // namespace thalweg
