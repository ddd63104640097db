// What `thalweg bench transport` measures: DLCP between two processes, beside raw UDP and kernel
// TCP, in two parts:
//
//   clean   the link is as fast as two cores drive it. In turn: raw UDP with GSO and GRO, which is
//           what the system can carry in packets of this size, kernel TCP, and DLCP with exact
//           tensors, without and with a job key.
//   lossy   1 Gb/s, every packet in both directions may be lost at random: the time of one tensor,
//           from the call that sends it to its end at the receiver. The limit is the time that its
//           packets, headers included, take at 1 Gb/s without any loss.
//
// The lossy part needs network namespaces. Without them the clean part runs on loopback.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include <thalweg/result.h>

namespace thalweg::lab {

struct TransportBenchOptions {
  bool quick = false;   // a few seconds, to see that it works
  double bound = 0.02;  // DLCP's loss bound in the lossy part, in [0, 1)
};

// Measures in two child processes. To be called before there are threads.
[[nodiscard]] Result<nlohmann::ordered_json> measure_transport(
    const TransportBenchOptions& options);

// The result as tables for people.
[[nodiscard]] std::string transport_text(const nlohmann::ordered_json& result);

}  // namespace thalweg::lab
