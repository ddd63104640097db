// A packet in the simulator: a descriptor without payload. Plain data, pooled, moved by index.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace thalweg::sim {

using FlowId = Id<struct FlowIdTag>;

// What the DLCP kinds put into the fields is said in sim/dlcp/dlcp_drive.cc, what those of
// aggregation put there in sim/atp/packet_header.h.
enum class PacketKind : std::uint8_t {
  kData,
  kAck,
  kDlcpData,
  kDlcpControl,
  kDlcpAck,
  kDlcpStopCopy,
  kDlcpGrant,
  kAggregated,  // gradients, updates, and sums for one worker
  kMulticast,   // sums for all workers of a job
};
// Whether packets of this kind go through the stage of switches (sim/core/switch_stage.h).
constexpr bool for_stage(PacketKind kind) { return kind >= PacketKind::kAggregated; }

// The two ECN bits of IP (RFC 3168).
enum class Ecn : std::uint8_t { kNotCapable = 0, kCapable = 2, kCongested = 3 };

struct Packet {
  // kData: the first byte of the payload in its flow. kAck: the next byte the receiver expects.
  std::uint64_t sequence = 0;
  Time sent;  // kData: when the transport sent it. kAck: the same of the packet it answers.
  FlowId flow;
  Rank source;
  Rank target;
  std::uint32_t payload = 0;    // bytes; kAck: 0
  std::uint32_t wire_size = 0;  // bytes on a link, headers included
  // In queues that look at it, a smaller number goes first and is dropped last (pFabric: the bytes
  // that the flow still has to send).
  std::uint32_t rank_in_queue = 0;
  std::uint32_t path_hash = 0;  // chooses among equal paths
  std::uint32_t incoming = 0;   // kData: the number of the flow at its receiver (sim/hosts)
  PacketKind kind = PacketKind::kData;
  std::uint8_t priority = 0;  // the queue; 0 is served first
  Ecn ecn = Ecn::kNotCapable;
  bool echo = false;  // kAck: the packet it answers was marked congested
  bool retransmission = false;
  std::uint8_t path = 0;  // kDlcpData: the sender's number of the path that the packet takes
  // path_hash is a label (switch/queueing/route.h), whatever `balancing` says.
  bool labelled = false;
};

}  // namespace thalweg::sim
