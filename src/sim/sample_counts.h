// Samples of a run as counter events: what waited and was lost at the ports of switches, and what
// arrived.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "sim/samples.h"
#include "trace/event.h"

namespace thalweg {

// A counter has an event where its value changes. Ports come with the deepest queue first until
// there are `most` events. `names` keeps what the events refer to. Returns how many are left out.
std::size_t append_sample_counts(const Samples& samples, const std::vector<std::string>& delivered,
                                 const Topology& topology, std::size_t most,
                                 std::deque<std::string>& names, std::vector<Event>& events);

// Ports of switches by the mean depth of their queues, deepest first; those where nothing ever
// waited are left out.
std::vector<ArcId> deepest_ports(const Samples& samples, const Topology& topology);

}  // namespace thalweg
