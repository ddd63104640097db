#include "lab/testbed/up_options.h"

#include <fmt/core.h>

#include <cmath>

#include "sim/scenario/scenario.h"
#include "topology/with_links.h"

namespace thalweg::lab {

Result<topology::Topology> scaled_topology(const topology::Topology& topology, double scale) {
  if (!(scale > 0 && scale <= 1)) {
    return Error(fmt::format("--scale: {}: must be above 0 and at most 1", scale));
  }
  for (const topology::Link& link : topology.links()) {
    const double slower = link.spec.delay.s() / scale;
    if (static_cast<double>(link.spec.rate.bps()) * scale < 1 || slower > topology::kMaxDelay.s()) {
      return Error(fmt::format("--scale: {}: a link of {} with a delay of {} is out of range",
                               scale, to_string(link.spec.rate), to_string(link.spec.delay)));
    }
  }
  return topology::with_links(topology, [&](topology::LinkId link) {
    topology::LinkSpec spec = topology.links()[link.index()].spec;
    spec.rate =
        Bandwidth::bits_per_second(std::llround(static_cast<double>(spec.rate.bps()) * scale));
    spec.delay = Duration::seconds(spec.delay.s() / scale);
    return spec;
  });
}

Result<sim::NetworkOptions> network_options_from(const std::vector<std::string>& settings) {
  std::string yaml;
  bool disciplined = false;
  for (const std::string& text : settings) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      return Error(fmt::format("--set: '{}': write KEY=VALUE, as in mark_above=30KB", text));
    }
    disciplined = disciplined || text.starts_with("discipline=");
    yaml += text.substr(0, equals) + ": " + text.substr(equals + 1) + "\n";
  }
  if (!disciplined) yaml += "discipline: strict-priority\n";
  THALWEG_TRY(const sim::NetworkOptions options, sim::network_options_from_yaml(yaml, "--set"));
  if (options.queues.discipline == sim::QueueOptions::Discipline::kPFabric ||
      options.balancing == sim::LoadBalancing::kLabel) {
    return Error(
        "--set: pfabric and label need what no frame says: the discipline may be fifo or "
        "strict-priority, the balancing flow-hash or per-packet");
  }
  return options;
}

}  // namespace thalweg::lab
