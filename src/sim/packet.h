// A packet in the simulator: a descriptor, no payload. Plain data, pooled, moved by index.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace thalweg {

using FlowId = Id<struct FlowIdTag>;

// The kinds of DLCP say in sim/dlcp/dlcp_drive.cc what they put into the fields, those of
// aggregation in sim/atp/packet_header.h.
enum class PacketKind : std::uint8_t {
  kData,
  kAck,
  kDlcpData,
  kDlcpControl,
  kDlcpAck,
  kAggregated,  // gradients, updates, and sums for one worker
  kMulticast,   // sums for all workers of a job
};
// Whether switches look into such packets (sim/switch_stage.h).
constexpr bool for_stage(PacketKind kind) { return kind >= PacketKind::kAggregated; }

// The two ECN bits of IP (RFC 3168).
enum class Ecn : std::uint8_t { kNotCapable = 0, kCapable = 2, kCongested = 3 };

struct Packet {
  // kData: the first byte of the payload in its flow. kAck: the next byte the receiver expects.
  std::uint64_t sequence = 0;
  Time sent;  // kData: when it left the transport. kAck: that of what it answers.
  FlowId flow;
  Rank source;
  Rank target;
  std::uint32_t payload = 0;    // bytes; kAck: 0
  std::uint32_t wire_size = 0;  // bytes on a link, headers included
  // Smaller goes first and is dropped last, where a queue looks at it (pFabric: bytes the flow
  // still has to send).
  std::uint32_t rank_in_queue = 0;
  std::uint32_t path_hash = 0;  // chooses among equal paths
  PacketKind kind = PacketKind::kData;
  std::uint8_t priority = 0;  // queue, 0 first
  Ecn ecn = Ecn::kNotCapable;
  bool echo = false;  // kAck: the packet it answers was marked congested
  bool retransmission = false;
  std::uint8_t path = 0;  // kDlcpData: the sender's number of the path it takes
  bool labelled = false;  // path_hash is a label (switch/route.h), whatever `balancing` says
};

}  // namespace thalweg
