// Packets of in-network aggregation (the ATP paper, section 5.2; docs/protocol-atp.md draws the
// bytes). Gradient packets go up from the workers through at most two aggregating switches to a
// parameter server; parameter packets bring the sums down and acknowledge the gradients.
//
// The workers of a job form groups, at most 32 groups of at most 32 workers; as a rule a rack is a
// group. A packet says whose contributions it holds: all workers of the groups in `groups`, and
// those workers of the group `group` that are in `workers`. So a group is either in `groups`, or
// partly in `workers`, never both.
//
// A server that is a worker may add its own gradients itself. Then `fan_in` is one less in the
// packets of its sequences and its group, and that group is whole without its contribution.
//
// Packets are little-endian like everything on our wire, elements included: switches and hosts add
// without swapping bytes.
//
// Two checks find what links and memories change. The check word adds up as the elements do, and is
// verified by those who hold the elements (proto/atp/check.h). The header check covers the bytes
// before it, the check word included, from one hop to the next.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/wire.h"

namespace thalweg::wire {

// The version of these packets, in their first byte. It is apart from kWireVersion because switches
// in the kernel read nothing else.
inline constexpr std::uint8_t kAtpVersion = 6;

inline constexpr std::size_t kAtpMostWorkersPerGroup = 32;
inline constexpr std::size_t kAtpMostGroups = 32;
// A frame of 9000 bytes holds this many elements.
inline constexpr std::size_t kAtpMostElements = 2048;

enum class AtpKind : std::uint8_t {
  kGradient = 'G',   // worker to server, through the aggregating switches
  kParameter = 'P',  // server to worker: the sum; acknowledges its sequence
  kAbort = 'A',      // server to worker: the job cannot go on without the workers it names
  kMissing = 'M',    // switch to worker: it has later contributions of the worker, not this one
  kUpdate = 'U',     // SwitchML: worker to switch, which is the server
  kResult = 'R',     // SwitchML: switch to worker, the sum
};

// What a switch or server does with the elements of a packet that arrived.
enum class AtpPayload : std::uint8_t {
  kNothing,
  kStore,  // overwrites the slot
  kAdd,    // adds to the slot, saturating; if an element saturates, the driver calls
           // mark_saturated()
};

// The next level that may aggregate a gradient packet: the paper's edge-switch identifier.
inline constexpr std::uint8_t kAtpFirstLevel = 0;   // the workers' switch
inline constexpr std::uint8_t kAtpSecondLevel = 1;  // the server's switch
inline constexpr std::uint8_t kAtpServerLevel = 2;  // the server: both switches are passed

struct AtpHeader {
  AtpKind kind = AtpKind::kGradient;
  std::uint8_t level = kAtpFirstLevel;  // in gradients; otherwise 0
  std::uint32_t job = 0;
  std::uint64_t sequence = 0;  // counts the blocks of elements of a job; never repeats
  // In gradients and updates: whose contributions the packet holds, see above. In parameters and
  // results: the workers it is for. In aborts and reports: the workers that are missing.
  std::uint32_t workers = 0;
  std::uint32_t groups = 0;
  std::uint8_t group = 0;        // below group_count
  std::uint8_t fan_in = 1;       // how many workers of `group` the first level waits for
  std::uint8_t group_count = 1;  // what the second level waits for
  std::int8_t exponent = 0;      // of the fixed-point elements; the same in all contributions
  // The largest exponent that any worker needs for the block one window later (SwitchML's scheme),
  // and the largest that any worker needs for this block: sums carry the maximum of both.
  std::int8_t next_exponent = 0;
  std::int8_t needed_exponent = 0;
  std::uint16_t elements = 0;  // 0 in aborts and reports of missing contributions, and only there
  // In gradients and parameters: of the contributions in the elements (proto/atp/check.h). Sums
  // carry the sum, modulo 2^64.
  std::uint64_t check = 0;
  bool resend = false;     // a retransmission, or a sum that a retransmission took along
  bool collision = false;  // its slot was taken: it must not be aggregated further up
  bool congested = false;  // marked by a switch (ECN), or echoes such a mark
  bool saturated = false;  // some element has reached the end of its range
  bool keyed = false;      // a nonce and a tag follow the header (wire/atp_seal.h)
  bool operator==(const AtpHeader&) const = default;
};

// The sequence number of a block that is sent a second time, with another exponent, is that of its
// first time plus this. To a switch it is one more sequence of the job. The distance is a multiple
// of every number up to 32, so both go to the same server and, as a rule, to the same shard and
// slot; and it is beyond every number of a first time.
inline constexpr std::uint64_t kAtpRepetition = 144'403'552'893'600ULL << 14;
inline constexpr std::uint32_t kAtpMostServersOfRepetitions = 32;
constexpr bool atp_is_repetition(std::uint64_t sequence) { return sequence >= kAtpRepetition; }
// The number of the block's first time.
constexpr std::uint64_t atp_first_time(std::uint64_t sequence) {
  return atp_is_repetition(sequence) ? sequence - kAtpRepetition : sequence;
}

// Between two switches the packets of a job are spread over several paths (docs/switch.md). All
// packets of a sequence take the same of them, and so do runs of kAtpPathRun sequences, so that
// packets that leave together mostly share a path.
inline constexpr std::uint64_t kAtpPathRun = 8;
inline constexpr std::uint32_t kAtpMostPaths = 32;
constexpr std::uint32_t atp_path_of(std::uint64_t sequence, std::uint32_t paths) {
  return paths <= 1 ? 0
                    : static_cast<std::uint32_t>(atp_first_time(sequence) / kAtpPathRun % paths);
}

inline constexpr std::size_t kAtpHeaderSize = 44;
inline constexpr std::size_t kAtpHeaderCheckSize = 4;  // its last bytes
// Bytes of a keyed packet's nonce and tag (wire/atp_seal.h).
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
// Whether all of a group are in the set: as many as its fan-in, whichever they are.
constexpr bool atp_whole(std::uint32_t members, unsigned fan_in) {
  return std::popcount(members) == static_cast<int>(fan_in);
}
// The set whose only member is `i`. Requires i < 32.
constexpr std::uint32_t atp_bit(unsigned i) { return std::uint32_t{1} << i; }

// Checks the fields, for the encoder and the decoder. Returns kNone if all are allowed.
[[nodiscard]] WireError check_atp_header(const AtpHeader& header);

// Requires room for kAtpHeaderSize bytes and a header that passes check_atp_header(). AtpSealer
// fills in the seal.
void encode_atp_header(const AtpHeader& header, std::span<std::byte> out);
// Makes the header check right again after a change of the header's bytes. Requires kAtpHeaderSize
// bytes. Encoding does it; this is for those who change encoded packets.
void put_atp_header_check(std::span<std::byte> packet);

// Reads the header of a whole packet. On anything but kNone, the caller drops the packet and
// ignores `out`. kChecksum: the header changed on its way.
[[nodiscard]] WireError decode_atp_header(std::span<const std::byte> packet, AtpHeader& out);

// The job that a packet says it is of, before its header is verified; 0 if it is too short.
[[nodiscard]] std::uint32_t atp_job_of(std::span<const std::byte> packet);

// The elements of a packet that decode_atp_header() accepted; not aligned.
[[nodiscard]] std::span<const std::byte> atp_payload(std::span<const std::byte> packet,
                                                     const AtpHeader& header);

}  // namespace thalweg::wire
