#include "wire/data_header.h"

#include <limits>

#include "base/check.h"
#include "wire/byte_io.h"

namespace thalweg::wire {
namespace {

constexpr std::uint8_t kDataKind = 'D';
constexpr std::uint8_t kRetransmissionFlag = 1;
constexpr std::uint8_t kKeyedData = 2;
constexpr std::uint8_t kImportantBit = 8;
constexpr std::uint32_t kMaxSegment = std::numeric_limits<std::int32_t>::max();

static_assert(kDataHeaderSize == 4 * sizeof(std::uint8_t) + sizeof(DataHeader::transfer) +
                                     sizeof(DataHeader::job) + sizeof(DataHeader::sequence) +
                                     sizeof(DataHeader::segment) + sizeof(DataHeader::sent_us) +
                                     sizeof(DataHeader::length) + sizeof(DataHeader::session));
static_assert(kPriorityCount == kImportantBit);

}  // namespace

void encode_data_header(const DataHeader& header, std::span<std::byte> out) {
  CHECK(header.tag.priority < kPriorityCount, "priority {}", header.tag.priority);
  CHECK(header.keyed || header.session == 0);
  ByteWriter writer(out.first(kDataHeaderSize));
  writer.put(kWireVersion);
  writer.put(kDataKind);
  writer.put(static_cast<std::uint8_t>((header.retransmission ? kRetransmissionFlag : 0) |
                                       (header.keyed ? kKeyedData : 0)));
  writer.put(
      static_cast<std::uint8_t>(header.tag.priority | (header.tag.important ? kImportantBit : 0)));
  writer.put(header.transfer);
  writer.put(header.job);
  writer.put(header.sequence);
  writer.put(header.segment);
  writer.put(header.sent_us);
  writer.put(header.length);
  writer.put(header.session);
  CHECK(writer.ok() && writer.used() == kDataHeaderSize);
}

WireError decode_data_header(std::span<const std::byte> packet, DataHeader& out) {
  if (packet.size() < kDataHeaderSize) return WireError::kShort;
  ByteReader reader(packet.first(kDataHeaderSize));
  if (reader.get<std::uint8_t>() != kWireVersion) return WireError::kVersion;
  if (reader.get<std::uint8_t>() != kDataKind) return WireError::kKind;
  const auto flags = reader.get<std::uint8_t>();
  const auto tag = reader.get<std::uint8_t>();
  if (flags > (kRetransmissionFlag | kKeyedData)) return WireError::kReserved;
  if (tag >= 2 * kImportantBit) return WireError::kReserved;
  out.retransmission = (flags & kRetransmissionFlag) != 0;
  out.keyed = (flags & kKeyedData) != 0;
  out.tag.priority = tag % kPriorityCount;
  out.tag.important = (tag & kImportantBit) != 0;
  out.transfer = reader.get<std::uint32_t>();
  out.job = reader.get<std::uint64_t>();
  out.sequence = reader.get<std::uint64_t>();
  out.segment = reader.get<std::uint32_t>();
  out.sent_us = reader.get<std::uint32_t>();
  out.length = reader.get<std::uint16_t>();
  out.session = reader.get<std::uint16_t>();
  if (!out.keyed && out.session != 0) return WireError::kReserved;
  if (out.segment > kMaxSegment) return WireError::kField;
  if (out.length == 0) return WireError::kLength;
  if (packet.size() != data_overhead(out.keyed) + out.length) return WireError::kLength;
  return WireError::kNone;
}

bool data_is_intact(std::span<const std::byte> packet) {
  constexpr std::size_t kHead = data_overhead(false);
  return checksum_holds(packet.first(kHead), packet.subspan(kHead));
}

std::span<const std::byte> data_payload(std::span<const std::byte> packet,
                                        const DataHeader& header) {
  return packet.subspan(data_overhead(header.keyed), header.length);
}

}  // namespace thalweg::wire
