#include "wire/atp_packet.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "wire/byte_io.h"

namespace thalweg::wire {
namespace {

constexpr std::uint8_t kResendFlag = 1;
constexpr std::uint8_t kCollisionFlag = 2;
constexpr std::uint8_t kCongestedFlag = 4;
constexpr std::uint8_t kSaturatedFlag = 8;
constexpr std::uint8_t kKeyedFlag = 16;
constexpr std::uint8_t kAllFlags = 31;

static_assert(kAtpHeaderSize ==
              3 * sizeof(std::uint8_t) + sizeof(AtpHeader::level) + sizeof(AtpHeader::job) +
                  sizeof(AtpHeader::sequence) + sizeof(AtpHeader::workers) +
                  sizeof(AtpHeader::groups) + sizeof(AtpHeader::group) + sizeof(AtpHeader::fan_in) +
                  sizeof(AtpHeader::group_count) + sizeof(AtpHeader::exponent) +
                  sizeof(AtpHeader::next_exponent) + sizeof(AtpHeader::needed_exponent) +
                  sizeof(AtpHeader::elements) + sizeof(AtpHeader::check) + kAtpHeaderCheckSize);

// The weights of the header's 32-bit words in the header check. The program in the kernel has the
// same (switchd/xdp/atp_slot.bpf.h).
constexpr std::array<std::uint64_t, (kAtpHeaderSize - kAtpHeaderCheckSize) / 4> kWeights = {
    0xe220a8397b1dcdaf, 0x6e789e6aa1b965f5, 0x06c45d188009454f, 0xf88bb8a8724c81ed,
    0x1b39896a51a8749b, 0x53cb9f0c747ea2eb, 0x2c829abe1f4532e1, 0xc584133ac916ab3d,
    0x3ee5789041c98ac3, 0xf3b8488c368cb0a7};

// The upper half of the weighted sum, modulo 2^64. A changed bit, or two 16-bit words that changed
// places, change it; the unit tests try all of them. Other changes go unnoticed once in 2^32.
std::uint32_t header_check(std::span<const std::byte> header) {
  static_assert(std::endian::native == std::endian::little);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kWeights.size(); ++i) {
    std::uint32_t word = 0;
    std::memcpy(&word, &header[i * sizeof(word)], sizeof(word));
    sum += word * kWeights[i];
  }
  return static_cast<std::uint32_t>(sum >> 32);
}

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
    case AtpKind::kMissing:
    case AtpKind::kUpdate:
    case AtpKind::kResult:
      return true;
  }
  return false;
}

// The places of a group with this fan-in: one more where a server adds the gradients of its own
// worker itself. SwitchML has no such servers.
unsigned places_of(const AtpHeader& header) {
  const bool switchml = header.kind == AtpKind::kUpdate || header.kind == AtpKind::kResult;
  return switchml || header.fan_in == kAtpMostWorkersPerGroup ? header.fan_in : header.fan_in + 1U;
}

// The sets lie within the job, are not both empty, and name no worker twice.
bool sets_hold(const AtpHeader& header) {
  if (header.fan_in < 1 || header.fan_in > kAtpMostWorkersPerGroup) return false;
  if (header.group_count < 1 || header.group_count > kAtpMostGroups) return false;
  if (header.group >= header.group_count) return false;
  if ((header.workers & ~atp_all(places_of(header))) != 0) return false;
  if (std::popcount(header.workers) > header.fan_in) return false;
  if ((header.groups & ~atp_all(header.group_count)) != 0) return false;
  if (header.workers == 0) return header.groups != 0;
  return (header.groups & atp_bit(header.group)) == 0;
}

// The second level adds only whole groups; a part of a group must carry a flag with which it
// passes.
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
  const bool empty = header.kind == AtpKind::kAbort || header.kind == AtpKind::kMissing;
  if (empty != (header.elements == 0)) return WireError::kLength;
  return header.elements > kAtpMostElements ? WireError::kLength : WireError::kNone;
}

void encode_atp_header(const AtpHeader& header, std::span<std::byte> out) {
  const WireError error = check_atp_header(header);
  CHECK(error == WireError::kNone, "a packet whose {} is wrong", name_of(error));
  ByteWriter writer(out.first(kAtpHeaderSize));
  writer.put(kAtpVersion);
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
  writer.put(static_cast<std::uint8_t>(header.needed_exponent));
  writer.put(header.elements);
  writer.put(header.check);
  CHECK(writer.ok() && writer.used() == kAtpHeaderSize - kAtpHeaderCheckSize);
  put_atp_header_check(out);
}

void put_atp_header_check(std::span<std::byte> packet) {
  const std::uint32_t value = header_check(packet.first(kAtpHeaderSize - kAtpHeaderCheckSize));
  std::memcpy(&packet[kAtpHeaderSize - kAtpHeaderCheckSize], &value, sizeof(value));
}

std::uint32_t atp_job_of(std::span<const std::byte> packet) {
  constexpr std::size_t kJobAt = 4;
  if (packet.size() < kAtpHeaderSize) return 0;
  return ByteReader(packet.subspan(kJobAt, sizeof(std::uint32_t))).get<std::uint32_t>();
}

WireError decode_atp_header(std::span<const std::byte> packet, AtpHeader& out) {
  if (packet.size() < kAtpHeaderSize) return WireError::kShort;
  ByteReader reader(packet.first(kAtpHeaderSize));
  if (reader.get<std::uint8_t>() != kAtpVersion) return WireError::kVersion;
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
  out.needed_exponent = static_cast<std::int8_t>(reader.get<std::uint8_t>());
  out.elements = reader.get<std::uint16_t>();
  out.check = reader.get<std::uint64_t>();
  const auto sent = reader.get<std::uint32_t>();
  if (sent != header_check(packet.first(kAtpHeaderSize - kAtpHeaderCheckSize))) {
    return WireError::kChecksum;
  }
  if (!known(out.kind)) return WireError::kKind;
  if ((flags & ~kAllFlags) != 0) return WireError::kReserved;
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

}  // namespace thalweg::wire
