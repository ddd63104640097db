// The header of a data packet: one segment of one tensor. The payload follows it, after the keyed
// tag where there is one, and is the rest of the packet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/segment_tag.h"
#include "wire/wire.h"

namespace thalweg {

struct DataHeader {
  JobToken job = 0;
  std::uint64_t sequence = 0;  // counts the data packets to one peer; never repeats
  std::uint32_t transfer = 0;  // the receiver's number for the transfer
  std::uint32_t segment = 0;   // index in the tensor's partition
  std::uint32_t sent_us = 0;   // wire_clock() of the sender
  std::uint16_t length = 0;    // payload bytes
  SegmentTag tag;
  bool retransmission = false;  // asked for by the receiver
  bool keyed = false;           // a KeyedTag follows the header
  std::uint16_t session = 0;    // keyed: session_mark() of the sender's scope; otherwise 0
  bool operator==(const DataHeader&) const = default;
};

inline constexpr std::size_t kDataHeaderSize = 36;
// Bytes before the payload.
constexpr std::size_t data_overhead(bool keyed) {
  return kDataHeaderSize + (keyed ? kKeyedTagSize : 0);
}

// Requires room for kDataHeaderSize bytes and tag.priority < kPriorityCount. Leaves the keyed tag
// to who computes it.
void encode_data_header(const DataHeader& header, std::span<std::byte> out);

// Reads the header of a whole packet. Anything but kNone: drop the packet, `out` says nothing.
[[nodiscard]] WireError decode_data_header(std::span<const std::byte> packet, DataHeader& out);

// The payload of a packet whose header decoded well.
[[nodiscard]] std::span<const std::byte> data_payload(std::span<const std::byte> packet,
                                                      const DataHeader& header);

}  // namespace thalweg
