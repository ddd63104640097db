// The shortest time that a training step can take on a network, computed from the rates of its
// links. docs/bench-step.md has the formula. Delays, losses and processors take no time here.
#pragma once

#include "base/units.h"
#include "lab/bench/step/libraries.h"
#include "lab/bench/step/schedule.h"
#include "topology/topology.h"

namespace thalweg::lab::step {

// The shortest time in which all hosts of the topology can have the sum of a tensor of `size`,
// by the library's packets. `bound`: the share that the library need not deliver. Requires at least
// two hosts.
[[nodiscard]] Duration wire_time(const topology::Topology& topology, const Library& library,
                                 Bytes size, double bound);

// The shortest time of a step, from the start of its forward pass to that of the next, when the
// links carry one bucket after the other.
[[nodiscard]] Duration step_limit(const topology::Topology& topology, const Library& library,
                                  const Schedule& schedule, double bound);

// The rate of the slowest host: the sum of its links.
[[nodiscard]] Bandwidth slowest_host(const topology::Topology& topology);

}  // namespace thalweg::lab::step
