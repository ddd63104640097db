#include "wire/atp_packet.h"

#include "base/check.h"
#include "wire/byte_io.h"

namespace thalweg {
namespace {

constexpr std::uint8_t kResendFlag = 1;
constexpr std::uint8_t kCollisionFlag = 2;
constexpr std::uint8_t kCongestedFlag = 4;
constexpr std::uint8_t kSaturatedFlag = 8;
constexpr std::uint8_t kKeyedFlag = 16;
constexpr std::uint8_t kAllFlags = 31;

static_assert(kAtpHeaderSize == 3 * sizeof(std::uint8_t) + sizeof(AtpHeader::level) +
                                    sizeof(AtpHeader::job) + sizeof(AtpHeader::sequence) +
                                    sizeof(AtpHeader::workers) + sizeof(AtpHeader::groups) +
                                    sizeof(AtpHeader::group) + sizeof(AtpHeader::fan_in) +
                                    sizeof(AtpHeader::group_count) + sizeof(AtpHeader::exponent) +
                                    sizeof(AtpHeader::next_exponent) + sizeof(std::uint8_t) +
                                    sizeof(AtpHeader::elements));

std::uint8_t flags_of(const AtpHeader& header) {
  return static_cast<std::uint8_t>(
      (header.resend ? kResendFlag : 0) | (header.collision ? kCollisionFlag : 0) |
      (header.congested ? kCongestedFlag : 0) | (header.saturated ? kSaturatedFlag : 0) |
      (header.keyed ? kKeyedFlag : 0));
}

bool known(AtpKind kind) {
  switch (kind) {
    case AtpKind::kGradient:
    case AtpKind::kParameter:
    case AtpKind::kAbort:
    case AtpKind::kUpdate:
    case AtpKind::kResult:
      return true;
  }
  return false;
}

// The sets lie within the job, name somebody, and name nobody twice.
bool sets_hold(const AtpHeader& header) {
  if (header.fan_in < 1 || header.fan_in > kAtpMostWorkersPerGroup) return false;
  if (header.group_count < 1 || header.group_count > kAtpMostGroups) return false;
  if (header.group >= header.group_count) return false;
  if ((header.workers & ~atp_all(header.fan_in)) != 0) return false;
  if ((header.groups & ~atp_all(header.group_count)) != 0) return false;
  if (header.workers == 0) return header.groups != 0;
  return (header.groups & atp_bit(header.group)) == 0;
}

// The second level adds whole groups only; what is less passes it under a flag.
bool level_holds(const AtpHeader& header) {
  if (header.kind != AtpKind::kGradient) return header.level == 0;
  if (header.level > kAtpServerLevel) return false;
  const bool passing = header.resend || header.collision;
  if (header.level == kAtpFirstLevel) return header.groups == 0;
  return passing || header.workers == 0;
}

}  // namespace

WireError check_atp_header(const AtpHeader& header) {
  if (!known(header.kind)) return WireError::kKind;
  const bool up = header.kind == AtpKind::kGradient || header.kind == AtpKind::kUpdate;
  if (!up && (header.resend || header.collision)) return WireError::kReserved;
  if (!sets_hold(header) || !level_holds(header)) return WireError::kField;
  const bool abort = header.kind == AtpKind::kAbort;
  if (abort != (header.elements == 0)) return WireError::kLength;
  return header.elements > kAtpMostElements ? WireError::kLength : WireError::kNone;
}

void encode_atp_header(const AtpHeader& header, std::span<std::byte> out) {
  const WireError error = check_atp_header(header);
  CHECK(error == WireError::kNone, "a packet whose {} is wrong", name_of(error));
  ByteWriter writer(out.first(kAtpHeaderSize));
  writer.put(kWireVersion);
  writer.put(static_cast<std::uint8_t>(header.kind));
  writer.put(flags_of(header));
  writer.put(header.level);
  writer.put(header.job);
  writer.put(header.sequence);
  writer.put(header.workers);
  writer.put(header.groups);
  writer.put(header.group);
  writer.put(header.fan_in);
  writer.put(header.group_count);
  writer.put(static_cast<std::uint8_t>(header.exponent));
  writer.put(static_cast<std::uint8_t>(header.next_exponent));
  writer.put(std::uint8_t{0});
  writer.put(header.elements);
  CHECK(writer.ok() && writer.used() == kAtpHeaderSize);
}

WireError decode_atp_header(std::span<const std::byte> packet, AtpHeader& out) {
  if (packet.size() < kAtpHeaderSize) return WireError::kShort;
  ByteReader reader(packet.first(kAtpHeaderSize));
  if (reader.get<std::uint8_t>() != kWireVersion) return WireError::kVersion;
  out.kind = static_cast<AtpKind>(reader.get<std::uint8_t>());
  const auto flags = reader.get<std::uint8_t>();
  out.level = reader.get<std::uint8_t>();
  out.job = reader.get<std::uint32_t>();
  out.sequence = reader.get<std::uint64_t>();
  out.workers = reader.get<std::uint32_t>();
  out.groups = reader.get<std::uint32_t>();
  out.group = reader.get<std::uint8_t>();
  out.fan_in = reader.get<std::uint8_t>();
  out.group_count = reader.get<std::uint8_t>();
  out.exponent = static_cast<std::int8_t>(reader.get<std::uint8_t>());
  out.next_exponent = static_cast<std::int8_t>(reader.get<std::uint8_t>());
  const auto reserved = reader.get<std::uint8_t>();
  out.elements = reader.get<std::uint16_t>();
  if (!known(out.kind)) return WireError::kKind;
  if ((flags & ~kAllFlags) != 0 || reserved != 0) return WireError::kReserved;
  out.resend = (flags & kResendFlag) != 0;
  out.collision = (flags & kCollisionFlag) != 0;
  out.congested = (flags & kCongestedFlag) != 0;
  out.saturated = (flags & kSaturatedFlag) != 0;
  out.keyed = (flags & kKeyedFlag) != 0;
  if (const WireError error = check_atp_header(out); error != WireError::kNone) return error;
  return packet.size() == atp_packet_size(out) ? WireError::kNone : WireError::kLength;
}

std::span<const std::byte> atp_payload(std::span<const std::byte> packet, const AtpHeader& header) {
  return packet.subspan(atp_overhead(header.keyed), header.elements * sizeof(std::int32_t));
}

}  // namespace thalweg
