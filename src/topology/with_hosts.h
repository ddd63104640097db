// A network with more hosts than it had.
#pragma once

#include <span>
#include <string>

#include <thalweg/result.h>

#include "topology/topology.h"

namespace thalweg {

struct AddedHost {
  std::string name;
  NodeId at;      // a switch: the host is linked to it and in its region
  LinkSpec spec;  // of that link
};

// Those that are there keep their ranks, and links their numbers; new ones come behind. The error
// is of a name that is there already, or of a link out of limits.
[[nodiscard]] Result<Topology> with_hosts(const Topology& topology,
                                          std::span<const AddedHost> added);

}  // namespace thalweg
