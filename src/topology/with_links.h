// Changes the links of a network: makes them slower, for example, because others use them.
#pragma once

#include <functional>

#include "topology/topology.h"

namespace thalweg::topology {

// The same network with each link as `spec_of` says. Requires rates above 0, within the limits.
Topology with_links(const Topology& topology, const std::function<LinkSpec(LinkId link)>& spec_of);

}  // namespace thalweg::topology
