#include "wire/frame.h"

#include "base/check.h"
#include "wire/byte_io.h"

namespace thalweg {

std::array<std::byte, kFrameSize> encode_frame(const Frame& frame) {
  std::array<std::byte, kFrameSize> bytes;
  ByteWriter writer(bytes);
  writer.put(kWireVersion);
  writer.put(static_cast<std::uint8_t>(frame.kind));
  writer.put(std::uint16_t{0});
  writer.put(frame.operation);
  writer.put(frame.slot);
  writer.put(frame.length);
  writer.put(frame.signature);
  writer.put(frame.started);
  writer.put(frame.rank);
  CHECK(writer.ok() && writer.used() == kFrameSize);
  return bytes;
}

WireError decode_frame(std::span<const std::byte, kFrameSize> bytes, Frame& out) {
  ByteReader reader(bytes);
  if (reader.get<std::uint8_t>() != kWireVersion) return WireError::kVersion;
  const auto kind = reader.get<std::uint8_t>();
  if (kind >= kFrameKindCount) return WireError::kKind;
  if (reader.get<std::uint16_t>() != 0) return WireError::kReserved;
  out.kind = static_cast<FrameKind>(kind);
  out.operation = reader.get<std::uint32_t>();
  out.slot = reader.get<std::uint32_t>();
  out.length = reader.get<std::uint32_t>();
  out.signature = reader.get<std::uint64_t>();
  out.started = reader.get<std::uint32_t>();
  out.rank = reader.get<std::uint32_t>();
  const bool lane = out.kind == FrameKind::kLaneData;
  const bool data = out.kind == FrameKind::kData || lane;
  if (out.length > (data ? kMaxFrameData : kMaxFrameText)) return WireError::kLength;
  if (data && (out.length == 0 || out.operation == 0)) return WireError::kField;
  if (lane && (out.rank == 0 || out.rank > kMaxLane)) return WireError::kField;
  return WireError::kNone;
}

}  // namespace thalweg
