// What `thalweg bench sim` measures: packet-hops per second of processor time of our simulator, and
// of ns-3 on the same flows.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include <thalweg/result.h>

namespace thalweg::lab {

// The options of the command, as they were given.
struct SimSpeedOptions {
  std::string topology = "leaf-spine:racks=9,hosts=16,spines=4,host=100G,uplink=100G";
  std::string flow_size = "10MB";
  std::string until = "100us";  // simulated time of a run
  int rounds = 2;               // flows that every host sends
  int turns = 3;                // how often both simulators are measured in turn
  std::uint64_t seed = 1;
  std::size_t threads = 0;  // of the runs on several threads; 0: one for each core
  std::string ns3;          // path of ns3_peer; empty: beside the folder of this program
  bool no_ns3 = false;      // measures our simulator only
};

// Checks the options and measures. A missing ns3_peer is an error only if `ns3` names it; otherwise
// the result says why ns-3 was not run.
[[nodiscard]] Result<nlohmann::ordered_json> measure_sim_speed(const SimSpeedOptions& options);

// The result for people.
[[nodiscard]] std::string sim_speed_text(const nlohmann::ordered_json& result);

}  // namespace thalweg::lab
