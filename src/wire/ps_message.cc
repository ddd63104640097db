#include "wire/ps_message.h"

#include "base/check.h"
#include "wire/byte_io.h"

namespace thalweg {
namespace {

WireError check(const PsHeader& header) {
  switch (header.kind) {
    case PsKind::kInit:
    case PsKind::kPush:
    case PsKind::kPull:
    case PsKind::kValue:
    case PsKind::kError:
      break;
    default:
      return WireError::kKind;
  }
  const bool has_text = header.kind != PsKind::kValue;
  if (header.text > kMaxPsText || (header.text == 0) == has_text) return WireError::kField;
  const bool no_elements = header.kind == PsKind::kPull || header.kind == PsKind::kError;
  if (header.elements > (no_elements ? 0 : kMaxPsElements)) return WireError::kLength;
  return WireError::kNone;
}

}  // namespace

void encode_ps_header(const PsHeader& header, std::span<std::byte, kPsHeaderSize> out) {
  CHECK(check(header) == WireError::kNone);
  ByteWriter writer(out);
  writer.put(kWireVersion);
  writer.put(static_cast<std::uint8_t>(header.kind));
  writer.put(std::uint16_t{0});
  writer.put(header.worker);
  writer.put(header.text);
  writer.put(std::uint32_t{0});
  writer.put(header.elements);
  writer.put(header.clock);
  CHECK(writer.ok() && writer.used() == kPsHeaderSize);
}

WireError decode_ps_header(std::span<const std::byte, kPsHeaderSize> in, PsHeader& out) {
  ByteReader reader(in);
  if (reader.get<std::uint8_t>() != kWireVersion) return WireError::kVersion;
  out.kind = static_cast<PsKind>(reader.get<std::uint8_t>());
  const auto reserved = reader.get<std::uint16_t>();
  out.worker = reader.get<std::uint32_t>();
  out.text = reader.get<std::uint32_t>();
  const auto more_reserved = reader.get<std::uint32_t>();
  out.elements = reader.get<std::uint64_t>();
  out.clock = reader.get<std::uint64_t>();
  if (reserved != 0 || more_reserved != 0) return WireError::kReserved;
  return check(out);
}

}  // namespace thalweg
