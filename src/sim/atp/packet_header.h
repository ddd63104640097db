// How the header of an aggregation packet (wire/atp_packet.h) is kept in the fields of a simulated
// packet:
//
//   sequence        the sequence
//   sent            whose contributions it holds: groups in the upper half, workers in the lower
//   flow            the aggregation it belongs to (the job of the header)
//   path            the kind of header
//   rank_in_queue   group, fan-in, group count, level, flags, elements
//   payload         one number that stands for all elements. Contributions are numbers that look
//                   random (contribution_of) and add up modulo 2^32, so the checks find a sum that
//                   has a contribution twice or lacks one.
//
// Exponents are not simulated.
#pragma once

#include <cstdint>

#include "base/prng.h"
#include "sim/core/packet.h"
#include "wire/atp_packet.h"

namespace thalweg::sim {

// The number that stands for worker `worker`'s elements of a sequence.
inline std::uint32_t contribution_of(std::size_t aggregation, std::size_t worker,
                                     std::uint64_t sequence) {
  return static_cast<std::uint32_t>(
      mix_bits(mix_bits(sequence + aggregation * kGoldenStep) + worker));
}

inline void put_header(const wire::AtpHeader& header, Packet& packet) {
  packet.sequence = header.sequence;
  const std::uint64_t members = std::uint64_t{header.groups} << 32 | header.workers;
  packet.sent = Time::at(Duration::picoseconds(static_cast<std::int64_t>(members)));
  packet.flow = FlowId(static_cast<std::int32_t>(header.job));
  packet.path = static_cast<std::uint8_t>(header.kind);
  const auto bit = [](bool flag, int place) { return std::uint32_t{flag} << place; };
  packet.rank_in_queue =
      header.group | (header.fan_in - 1U) << 5 | (header.group_count - 1U) << 10 |
      std::uint32_t{header.level} << 15 | bit(header.resend, 17) | bit(header.collision, 18) |
      bit(header.congested, 19) | bit(header.saturated, 20) | (header.elements - 1U) << 21;
}

inline wire::AtpHeader header_of(const Packet& packet) {
  wire::AtpHeader header;
  const std::uint32_t bits = packet.rank_in_queue;
  const auto members = static_cast<std::uint64_t>(packet.sent.since_start().ps());
  header.kind = static_cast<wire::AtpKind>(packet.path);
  header.level = bits >> 15 & 3;
  header.job = static_cast<std::uint32_t>(packet.flow.value());
  header.sequence = packet.sequence;
  header.workers = static_cast<std::uint32_t>(members);
  header.groups = static_cast<std::uint32_t>(members >> 32);
  header.group = bits & 31;
  header.fan_in = static_cast<std::uint8_t>((bits >> 5 & 31) + 1);
  header.group_count = static_cast<std::uint8_t>((bits >> 10 & 31) + 1);
  header.resend = (bits >> 17 & 1) != 0;
  header.collision = (bits >> 18 & 1) != 0;
  header.congested = (bits >> 19 & 1) != 0;
  header.saturated = (bits >> 20 & 1) != 0;
  header.elements = static_cast<std::uint16_t>((bits >> 21) + 1);
  if (header.kind == wire::AtpKind::kAbort || header.kind == wire::AtpKind::kMissing) {
    header.elements = 0;
  }
  return header;
}

}  // namespace thalweg::sim
