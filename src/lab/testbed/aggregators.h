// Adds the hosts on which gradients are summed in a testbed. Each is one more host at a switch and
// runs `thalweg switch`. Its link counts as a part of the switch: it is as fast as all other links
// of the switch together, and has no delay.
#pragma once

#include <string>
#include <vector>

#include <thalweg/result.h>

#include "topology/topology.h"

namespace thalweg::lab {

// The network with such a host at each of these switches ("all": at every switch). The new hosts
// and links come after the others, which keep their numbers. `switches` becomes the names, in
// order.
Result<topology::Topology> with_aggregators(const topology::Topology& topology,
                                            std::vector<std::string>& switches);

}  // namespace thalweg::lab
