// What the fuzzers of the simulator's files have to load: small topologies by shorthand, no models.
#pragma once

#include <string>

#include "sim/scenario.h"
#include "topology/load.h"

namespace thalweg {

inline ScenarioLoaders small_loaders() {
  constexpr int kMostHosts = 16;
  constexpr std::size_t kLongest = 100;
  return {
      .topology = [](const std::string& text) -> Result<Topology> {
        if (text.size() > kLongest) return Error("too long for a fuzzer");
        auto topology = topology_from_shorthand(text);
        if (topology.ok() && topology->host_count() > kMostHosts) {
          return Error("too large for a fuzzer");
        }
        return topology;
      },
      .model = [](const std::string&) -> Result<ModelTable> { return Error("no models here"); }};
}

}  // namespace thalweg
