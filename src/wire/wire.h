// What every packet and message of Thalweg has in common: the version, the job token, the place of
// the keyed tag, and the errors of decoders. docs/protocol-dlcp.md draws the bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/units.h"

namespace thalweg::wire {

inline constexpr std::uint8_t kWireVersion = 4;

// A random number that only the members of a job know.
using JobToken = std::uint64_t;

// Proves that a packet comes from a holder of the job key. In a data packet the tag follows the
// header and covers the header and the payload; in a control message it comes last and covers all
// bytes before it. The sequence number is among the covered bytes, and never repeats under one key,
// sender and KeyUse.
inline constexpr std::size_t kKeyedTagSize = 16;
using KeyedTag = std::array<std::byte, kKeyedTagSize>;

enum class WireError : std::uint8_t {
  kNone,
  kShort,     // the bytes end before the fields, or before the length that the header gives
  kVersion,   // the version of the protocol is another
  kKind,      // the kind is unknown
  kReserved,  // a bit is set that has no meaning in this version
  kLength,    // the lengths do not add up
  kField,     // a field has a value that is not allowed
  kChecksum,  // the bytes changed on their way
};
inline constexpr int kWireErrorCount = 8;

constexpr const char* name_of(WireError error) {
  switch (error) {
    case WireError::kNone:
      return "none";
    case WireError::kShort:
      return "short";
    case WireError::kVersion:
      return "version";
    case WireError::kKind:
      return "kind";
    case WireError::kReserved:
      return "reserved";
    case WireError::kLength:
      return "length";
    case WireError::kField:
      return "field";
    case WireError::kChecksum:
      return "checksum";
  }
  return "?";
}

// A sender's clock on the wire: whole microseconds, modulo 2^32 (71 minutes). Only differences are
// meaningful, and only those below half of that.
constexpr std::uint32_t wire_clock(Time time) {
  return static_cast<std::uint32_t>(
      static_cast<std::uint64_t>(time.since_start().ps() / 1'000'000) & 0xffffffff);
}
// later − earlier, in microseconds.
constexpr std::int32_t wire_clock_difference(std::uint32_t later, std::uint32_t earlier) {
  return static_cast<std::int32_t>(later - earlier);
}

}  // namespace thalweg::wire
