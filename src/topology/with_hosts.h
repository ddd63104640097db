// Adds hosts to a network.
#pragma once

#include <span>
#include <string>

#include <thalweg/result.h>

#include "topology/topology.h"

namespace thalweg::topology {

struct AddedHost {
  std::string name;
  NodeId at;      // the switch that the host is linked to; it is also in the switch's region
  LinkSpec spec;  // of that link
};

// Hosts of the topology keep their ranks and links their numbers; new ones come after them. Fails
// if a name exists already or a link is out of limits.
[[nodiscard]] Result<Topology> with_hosts(const Topology& topology,
                                          std::span<const AddedHost> added);

}  // namespace thalweg::topology
