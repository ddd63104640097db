// What a parameter server and its clients say to each other over TCP (docs/parameter-server.md): a
// header, then a name or text, then elements (float32) or other bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/wire.h"

namespace thalweg {

inline constexpr std::size_t kPsHeaderSize = 32;
inline constexpr std::size_t kMaxPsText = 1024;  // of a name or an error
inline constexpr std::uint64_t kMaxPsElements = std::uint64_t{1} << 31;
inline constexpr std::uint32_t kMaxPsBytes = std::uint32_t{1} << 31;

enum class PsKind : std::uint8_t {
  kHello = 'H',         // worker; the first request, answered by kWelcome
  kInit = 'I',          // name, elements: the value unless there is one; answered by what holds
  kPush = 'U',          // name, elements: a gradient; answered without elements
  kPull = 'L',          // name; answered by the value, when it may be seen
  kPushTransfer = 'S',  // name, count, key: as kPush, the elements come over DLCP
  kPullTransfer = 'R',  // name, count, key: as kPull, the elements go over DLCP
  kJoin = 'J',          // text: where the worker's ATP socket is; answered by kGroup
  kPushSum = 'X',       // name, count, group, bytes: exponents; answered by kGo or kJoinAgain, and
                        // after kGo, when the step is made, as kPush
  kValue = 'V',
  kError = 'E',      // the answer is a text
  kWelcome = 'W',    // bytes: a PsWelcome
  kGroup = 'A',      // bytes: an AtpGroupGrant
  kGo = 'G',         // bytes: the exponents of all
  kJoinAgain = 'O',  // the group of the request is over
};

struct PsHeader {
  PsKind kind = PsKind::kValue;
  std::uint32_t worker = 0;    // of a hello
  std::uint32_t text = 0;      // bytes of name or error, up to kMaxPsText
  std::uint32_t bytes = 0;     // of other kinds of bodies, up to kMaxPsBytes
  std::uint64_t elements = 0;  // up to kMaxPsElements
  // Of a value: updates that are in it. Of transfers: their key. Of kPushSum: the group.
  std::uint64_t clock = 0;
  bool operator==(const PsHeader&) const = default;

  // Elements follow; of other kinds they are only counted.
  [[nodiscard]] bool carries_elements() const {
    return kind == PsKind::kInit || kind == PsKind::kPush || kind == PsKind::kValue;
  }
  // Bytes that follow the text.
  [[nodiscard]] std::size_t body() const {
    return bytes + (carries_elements() ? elements * sizeof(float) : 0);
  }
};

// Requires fields in range.
void encode_ps_header(const PsHeader& header, std::span<std::byte, kPsHeaderSize> out);
// Anything but kNone: the stream cannot be trusted further.
[[nodiscard]] WireError decode_ps_header(std::span<const std::byte, kPsHeaderSize> in,
                                         PsHeader& out);

}  // namespace thalweg
