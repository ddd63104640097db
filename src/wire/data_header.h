// The header of a data packet, which carries one segment of one tensor. The keyed tag follows the
// header, or without a job key the checksum; the payload is the rest of the packet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/segment_tag.h"
#include "wire/checksum.h"
#include "wire/wire.h"

namespace thalweg::wire {

struct DataHeader {
  JobToken job = 0;
  std::uint64_t sequence = 0;  // counts the data packets to one peer; never repeats
  std::uint32_t transfer = 0;  // the receiver's number for the transfer
  std::uint32_t segment = 0;   // index in the tensor's partition
  std::uint32_t sent_us = 0;   // wire_clock() of the sender
  std::uint16_t length = 0;    // payload bytes
  SegmentTag tag;
  bool retransmission = false;  // asked for by the receiver
  bool keyed = false;           // a KeyedTag follows the header, otherwise a checksum
  std::uint16_t session = 0;    // keyed: session_mark() of the sender's scope; otherwise 0
  bool operator==(const DataHeader&) const = default;
};

inline constexpr std::size_t kDataHeaderSize = 36;
// Bytes before the payload.
constexpr std::size_t data_overhead(bool keyed) {
  return kDataHeaderSize + (keyed ? kKeyedTagSize : kChecksumSize);
}

// Requires room for kDataHeaderSize bytes and tag.priority < kPriorityCount. Sealer fills in the
// keyed tag, put_checksum() the checksum.
void encode_data_header(const DataHeader& header, std::span<std::byte> out);

// Reads the header of a whole packet. On anything but kNone, the caller drops the packet and
// ignores `out`.
[[nodiscard]] WireError decode_data_header(std::span<const std::byte> packet, DataHeader& out);

// Whether a packet without a keyed tag, which decode_data_header() accepted, is as it was sent.
[[nodiscard]] bool data_is_intact(std::span<const std::byte> packet);

// The payload of a packet that decode_data_header() accepted.
[[nodiscard]] std::span<const std::byte> data_payload(std::span<const std::byte> packet,
                                                      const DataHeader& header);

}  // namespace thalweg::wire
