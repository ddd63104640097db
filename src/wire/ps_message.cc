#include "wire/ps_message.h"

#include <optional>

#include "base/check.h"
#include "wire/byte_io.h"

namespace thalweg::wire {
namespace {

// Which fields a kind of message uses.
struct Shape {
  bool known = true;
  bool worker = false;
  bool text = false;
  bool bytes = false;
  bool elements = false;
  bool clock = false;
};

Shape shape_of(PsKind kind) {
  switch (kind) {
    case PsKind::kHello:
      return {.worker = true};
    case PsKind::kInit:
    case PsKind::kPush:
      return {.text = true, .elements = true};
    case PsKind::kPull:
    case PsKind::kJoin:
      return {.text = true};
    case PsKind::kError:
      return {.worker = true, .text = true, .clock = true};
    case PsKind::kPushTransfer:
    case PsKind::kPullTransfer:
      return {.text = true, .elements = true, .clock = true};
    case PsKind::kPushSum:
      return {.text = true, .bytes = true, .elements = true, .clock = true};
    case PsKind::kValue:
      return {.elements = true, .clock = true};
    case PsKind::kWelcome:
    case PsKind::kGroup:
    case PsKind::kGo:
      return {.bytes = true};
    case PsKind::kJoinAgain:
      return {};
  }
  return {.known = false};
}

WireError check(const PsHeader& header) {
  const Shape shape = shape_of(header.kind);
  if (!shape.known) return WireError::kKind;
  if (header.text > kMaxPsText || (header.text > 0) != shape.text) return WireError::kField;
  if (header.checks && header.kind != PsKind::kHello) return WireError::kReserved;
  if ((header.worker > 0 && !shape.worker) || (header.clock > 0 && !shape.clock)) {
    return WireError::kField;
  }
  if (header.bytes > kMaxPsBytes || (header.bytes > 0) != shape.bytes) return WireError::kLength;
  if (header.elements > (shape.elements ? kMaxPsElements : 0)) return WireError::kLength;
  return WireError::kNone;
}

}  // namespace

void encode_ps_header(const PsHeader& header, std::span<std::byte, kPsHeaderSize> out) {
  CHECK(check(header) == WireError::kNone);
  ByteWriter writer(out);
  writer.put(kPsVersion);
  writer.put(static_cast<std::uint8_t>(header.kind));
  writer.put(static_cast<std::uint16_t>(header.checks));
  writer.put(header.worker);
  writer.put(header.text);
  writer.put(header.bytes);
  writer.put(header.elements);
  writer.put(header.clock);
  CHECK(writer.ok() && writer.used() == kPsHeaderSize);
}

WireError decode_ps_header(std::span<const std::byte, kPsHeaderSize> in, PsHeader& out) {
  ByteReader reader(in);
  if (reader.get<std::uint8_t>() != kPsVersion) return WireError::kVersion;
  out.kind = static_cast<PsKind>(reader.get<std::uint8_t>());
  const auto checks = reader.get<std::uint16_t>();
  out.worker = reader.get<std::uint32_t>();
  out.text = reader.get<std::uint32_t>();
  out.bytes = reader.get<std::uint32_t>();
  out.elements = reader.get<std::uint64_t>();
  out.clock = reader.get<std::uint64_t>();
  if (checks > (out.kind == PsKind::kHello ? 1 : 0)) return WireError::kReserved;
  out.checks = checks == 1;
  return check(out);
}

void encode_checked_ps_header(const PsHeader& header, std::uint32_t payload,
                              std::span<std::byte, kCheckedPsHeaderSize> out) {
  encode_ps_header(header, out.first<kPsHeaderSize>());
  put_header_checks(out, payload);
}

WireError decode_checked_ps_header(std::span<const std::byte, kCheckedPsHeaderSize> in,
                                   PsHeader& out, std::uint32_t& payload) {
  // Another version may have other headers.
  if (in.front() != std::byte{kPsVersion}) return WireError::kVersion;
  const std::optional<std::uint32_t> of_payload = take_header_checks(in);
  if (!of_payload) return WireError::kChecksum;
  payload = *of_payload;
  return decode_ps_header(in.first<kPsHeaderSize>(), out);
}

}  // namespace thalweg::wire
