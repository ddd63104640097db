#include "wire/frame.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "wire/byte_io.h"

namespace thalweg::wire {

std::array<std::byte, kFrameSize> encode_frame(const Frame& frame) {
  std::array<std::byte, kFrameSize> bytes;
  ByteWriter writer(bytes);
  writer.put(kFrameVersion);
  writer.put(static_cast<std::uint8_t>(frame.kind));
  writer.put(static_cast<std::uint16_t>(frame.check));
  writer.put(frame.operation);
  writer.put(frame.index);
  writer.put(frame.length);
  writer.put(frame.signature);
  writer.put(frame.started);
  writer.put(frame.rank);
  CHECK(writer.ok() && writer.used() == kFrameSize);
  return bytes;
}

WireError decode_frame(std::span<const std::byte, kFrameSize> bytes, Frame& out) {
  ByteReader reader(bytes);
  if (reader.get<std::uint8_t>() != kFrameVersion) return WireError::kVersion;
  const auto kind = reader.get<std::uint8_t>();
  if (kind >= kFrameKindCount) return WireError::kKind;
  const auto check = reader.get<std::uint16_t>();
  const bool is_hello = kind == static_cast<std::uint8_t>(FrameKind::kHello);
  if (check >= (is_hello ? kFrameCheckCount : 1)) return WireError::kReserved;
  out.check = static_cast<FrameCheck>(check);
  out.kind = static_cast<FrameKind>(kind);
  out.operation = reader.get<std::uint32_t>();
  out.index = reader.get<std::uint32_t>();
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

std::array<std::byte, kCheckedFrameSize> encode_checked_frame(const Frame& frame,
                                                              std::uint32_t payload) {
  std::array<std::byte, kCheckedFrameSize> bytes;
  std::ranges::copy(encode_frame(frame), bytes.begin());
  put_header_checks(bytes, payload);
  return bytes;
}

WireError decode_checked_frame(std::span<const std::byte, kCheckedFrameSize> bytes, Frame& out,
                               std::uint32_t& payload) {
  // Another version may have other headers.
  if (bytes.front() != std::byte{kFrameVersion}) return WireError::kVersion;
  const std::optional<std::uint32_t> of_payload = take_header_checks(bytes);
  if (!of_payload) return WireError::kChecksum;
  payload = *of_payload;
  const WireError error = decode_frame(bytes.first<kFrameSize>(), out);
  if (error == WireError::kNone && out.length > kMaxCheckedData) return WireError::kLength;
  return error;
}

}  // namespace thalweg::wire
