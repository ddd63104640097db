// Where gradients are summed in a testbed: a host more at a switch, which runs what `thalweg
// switch` does. Its link is a part of the switch: as fast as all others of it together, without
// delay.
#pragma once

#include <string>
#include <vector>

#include <thalweg/result.h>

#include "topology/topology.h"

namespace thalweg {

// The network with such a host at each of these switches ("all": at every one), behind all others:
// hosts and links have the numbers that they had. `switches` becomes the names, in order.
Result<Topology> with_aggregators(const Topology& topology, std::vector<std::string>& switches);

}  // namespace thalweg
