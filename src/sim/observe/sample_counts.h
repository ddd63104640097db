// Samples of a run as counter events: how much waited and was lost at the ports of switches, and
// how much arrived.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "sim/observe/samples.h"
#include "trace/event.h"

namespace thalweg::sim {

// A counter has an event where its value changes. The ports with the deepest queues come first,
// until there are `most` events. `names` owns the names that the events refer to. Returns how many
// events are left out.
std::size_t append_sample_counts(const Samples& samples, const std::vector<std::string>& delivered,
                                 const topology::Topology& topology, std::size_t most,
                                 std::deque<std::string>& names, std::vector<trace::Event>& events);

// The ports of switches by the mean depth of their queues, deepest first, without those where
// nothing ever waited.
std::vector<topology::ArcId> deepest_ports(const Samples& samples,
                                           const topology::Topology& topology);

}  // namespace thalweg::sim
