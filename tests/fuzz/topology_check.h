// Checks the rules that every topology must satisfy that a reader accepts, however strange its
// text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "../unit/topology/invariants.h"
#include "base/check.h"
#include "topology/format/load.h"

namespace thalweg::topology {

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Makes quadratic checks only on small networks, so that an input takes milliseconds.
inline void check_topology(const Result<Topology>& result) {
  constexpr std::size_t kFewNodes = 400;
  constexpr int kFewHosts = 24;
  if (!result.ok()) {
    CHECK(!result.error().message().empty());
    return;
  }
  const Topology& topology = *result;
  if (topology.nodes().size() > kFewNodes) return;
  const std::string broken = broken_invariant(topology);
  CHECK(broken.empty(), "{}", broken);
  const Routing routing(topology);
  const int hosts = std::min(topology.host_count(), kFewHosts);
  for (std::int32_t from = 0; from < hosts; ++from) {
    for (std::int32_t to = 0; to < hosts; ++to) {
      const int distance = routing.distance(topology.host(Rank(from)), Rank(to));
      CHECK(from == to ? distance == 0 : distance > 0);
      CHECK(routing.delay(Rank(from), Rank(to)) >= Duration());
      const std::string lost = broken_conservation(topology, routing, Rank(from), Rank(to));
      CHECK(lost.empty(), "{}", lost);
    }
  }
  const std::string yaml = topology_to_yaml(topology);
  const Result<Topology> again = topology_from_yaml(yaml, "again.yaml");
  CHECK(again.ok(), "{}\n{}", again.error().message(), yaml);
  CHECK(*again == topology, "{}", yaml);
}

}  // namespace thalweg::topology
