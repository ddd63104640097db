// Packets of in-network aggregation (papers/atp.txt, section 5.2; docs/protocol-atp.md draws the
// bytes). Gradients go up from the workers by at most two aggregating switches to a parameter
// server; parameters, the sums, come down and acknowledge them.
//
// Workers of a job are in groups, at most 32 of at most 32: as a rule a rack is a group. A packet
// says whose contributions it holds: all workers of the groups in `groups`, and of the group
// `group` those in `workers`. So a group is either in `groups`, or partly in `workers`, never both.
//
// Little-endian like everything on our wire, elements included: switch and hosts add without
// turning bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/wire.h"

namespace thalweg {

inline constexpr std::size_t kAtpMostWorkersPerGroup = 32;
inline constexpr std::size_t kAtpMostGroups = 32;
// A frame of 9000 bytes holds that many.
inline constexpr std::size_t kAtpMostElements = 2048;

enum class AtpKind : std::uint8_t {
  kGradient = 'G',   // to the server, through the aggregation
  kParameter = 'P',  // the sum, from the server; acknowledges its sequence
  kAbort = 'A',      // from the server: the job cannot go on without the workers it names
  kUpdate = 'U',     // SwitchML: to the switch, which is the server
  kResult = 'R',     // SwitchML: the sum, from the switch
};

// What a switch or server does with the elements of a packet that arrived.
enum class AtpPayload : std::uint8_t {
  kNothing,
  kStore,  // overwrites the slot
  kAdd,    // adds to it, saturating; if an element saturates, the driver calls mark_saturated()
};

// Where a gradient packet is headed: the paper's edge-switch identifier.
inline constexpr std::uint8_t kAtpFirstLevel = 0;   // the workers' switch
inline constexpr std::uint8_t kAtpSecondLevel = 1;  // the server's switch
inline constexpr std::uint8_t kAtpServerLevel = 2;  // past both

struct AtpHeader {
  AtpKind kind = AtpKind::kGradient;
  std::uint8_t level = kAtpFirstLevel;  // gradients; otherwise 0
  std::uint32_t job = 0;
  std::uint64_t sequence = 0;  // counts the blocks of elements of a job; never repeats
  // Whose contributions: see above. Of a parameter and a result: whom it is for; of an abort: who
  // is missing.
  std::uint32_t workers = 0;
  std::uint32_t groups = 0;
  std::uint8_t group = 0;        // below group_count
  std::uint8_t fan_in = 1;       // workers of `group`: what the first level waits for
  std::uint8_t group_count = 1;  // what the second level waits for
  std::int8_t exponent = 0;      // of the fixed-point elements; the same in all contributions
  // The largest exponent that any worker needs for the block one window later (SwitchML's scheme):
  // sums carry the maximum.
  std::int8_t next_exponent = 0;
  std::uint16_t elements = 0;  // 0 only in an abort
  bool resend = false;         // a retransmission, or a sum that one took along
  bool collision = false;      // found its aggregator taken: not to be aggregated further up
  bool congested = false;      // marked on its way (ECN), or echoes such a mark
  bool saturated = false;      // some element has reached the end of its range
  bool keyed = false;          // AtpSeal and tag follow the header
  bool operator==(const AtpHeader&) const = default;
};

inline constexpr std::size_t kAtpHeaderSize = 32;
// What makes a keyed packet's nonce, and its tag (wire/atp_seal.h).
inline constexpr std::size_t kAtpSealSize = 12 + kKeyedTagSize;
// Bytes before the elements.
constexpr std::size_t atp_overhead(bool keyed) {
  return kAtpHeaderSize + (keyed ? kAtpSealSize : 0);
}
constexpr std::size_t atp_packet_size(const AtpHeader& header) {
  return atp_overhead(header.keyed) + header.elements * sizeof(std::int32_t);
}

// The set with the first `count` members. Requires count <= 32.
constexpr std::uint32_t atp_all(unsigned count) {
  return count == 32 ? ~std::uint32_t{0} : (std::uint32_t{1} << count) - 1;
}
// The set of one. Requires i < 32.
constexpr std::uint32_t atp_bit(unsigned i) { return std::uint32_t{1} << i; }

// What both the encoder and the decoder require of fields; kNone: all well.
[[nodiscard]] WireError check_atp_header(const AtpHeader& header);

// Requires room for kAtpHeaderSize bytes and a header that checks. Leaves the seal to AtpSealer.
void encode_atp_header(const AtpHeader& header, std::span<std::byte> out);

// Reads the header of a whole packet. Anything but kNone: drop the packet, `out` says nothing.
[[nodiscard]] WireError decode_atp_header(std::span<const std::byte> packet, AtpHeader& out);

// The elements of a packet whose header decoded well; not aligned.
[[nodiscard]] std::span<const std::byte> atp_payload(std::span<const std::byte> packet,
                                                     const AtpHeader& header);

}  // namespace thalweg
