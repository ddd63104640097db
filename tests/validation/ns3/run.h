// One run of a scenario in ns-3.
//
// Every flow has a TCP connection of its own, opened long before the flow starts, so that neither
// handshake nor slow first packets are part of it: its time runs from the call that hands its bytes
// to the socket, which sends the first of them at once, to the receiver's having them all.
#pragma once

#include <optional>
#include <vector>

#include "fabric.h"
#include "peer_socket.h"

namespace thalweg {

struct PeerFlowResult {
  std::optional<Duration> completion_time;  // none: not done when the run ended
  SocketCounters counters;
};

struct PeerResult {
  std::vector<PeerFlowResult> flows;  // in the order of the .flows file
  FabricCounters fabric;
  std::uint64_t events = 0;
  // What the simulation itself took: set-up and handshakes not counted.
  double wall_s = 0;
  double cpu_s = 0;
  Duration simulated;  // from time 0 of the flows to the end of the last, or of the run
  // Over all samples taken while a flow was running: packets waiting at the fullest port.
  double mean_queue = 0;
  std::uint32_t max_queue = 0;
  std::uint64_t queue_samples = 0;
};

// May be called once in a process: ns-3's settings and clock are global.
Result<PeerResult> run_peer(const topology::Topology& topology, const std::vector<PeerFlow>& flows,
                            const PeerOptions& options);

}  // namespace thalweg
