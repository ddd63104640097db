// Loaders for the fuzzers of the simulator's files: small topologies by shorthand, and no models.
#pragma once

#include <string>

#include "sim/scenario/scenario.h"
#include "topology/format/load.h"

namespace thalweg {

inline sim::ScenarioLoaders small_loaders() {
  constexpr int kMostHosts = 16;
  constexpr std::size_t kLongest = 100;
  return {.topology = [](const std::string& text) -> Result<topology::Topology> {
            if (text.size() > kLongest) return Error("too long for a fuzzer");
            auto topology = topology::topology_from_shorthand(text);
            if (topology.ok() && topology->host_count() > kMostHosts) {
              return Error("too large for a fuzzer");
            }
            return topology;
          },
          .model = [](const std::string&) -> Result<sim::ModelTable> {
            return Error("no models here");
          }};
}

}  // namespace thalweg
