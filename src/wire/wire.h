// What every packet and message of Thalweg has in common: version, job token, the place of the
// keyed tag, and why a decoder refuses. docs/protocol-dlcp.md draws the bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/units.h"

namespace thalweg {

inline constexpr std::uint8_t kWireVersion = 1;

// The random number that all members of a job hold and nobody else.
using JobToken = std::uint64_t;

// Proves that a packet comes from a holder of the job key. Data: it follows the header and covers
// the header and the payload. Control: it ends the message and covers all bytes before it. The
// sequence number, which is covered, never repeats under one key, sender and channel.
inline constexpr std::size_t kKeyedTagSize = 16;
using KeyedTag = std::array<std::byte, kKeyedTagSize>;

enum class WireError : std::uint8_t {
  kNone,
  kShort,     // ends before its fields do, or before the length it claims
  kVersion,   // of another version of the protocol
  kKind,      // of no known kind
  kReserved,  // a bit is set that has no meaning in this version
  kLength,    // its lengths do not add up
  kField,     // a field has a value that is not allowed
};
inline constexpr int kWireErrorCount = 7;

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
  }
  return "?";
}

// A sender's clock on the wire: whole microseconds, modulo 2^32 (71 minutes). Only differences
// mean something, and only below half of that.
constexpr std::uint32_t wire_clock(Time time) {
  return static_cast<std::uint32_t>(
      static_cast<std::uint64_t>(time.since_start().ps() / 1'000'000) & 0xffffffff);
}
// later − earlier, in microseconds.
constexpr std::int32_t wire_clock_difference(std::uint32_t later, std::uint32_t earlier) {
  return static_cast<std::int32_t>(later - earlier);
}

}  // namespace thalweg
