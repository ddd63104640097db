// What a parameter server and its clients say to each other over TCP (docs/parameter-server.md): a
// header, then a name or text, then float32 elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/wire.h"

namespace thalweg {

inline constexpr std::size_t kPsHeaderSize = 32;
inline constexpr std::size_t kMaxPsText = 1024;  // of a name or an error
inline constexpr std::uint64_t kMaxPsElements = std::uint64_t{1} << 31;

enum class PsKind : std::uint8_t {
  kInit = 'I',   // name, elements: the value unless there is one already; answered by what holds
  kPush = 'U',   // name, elements: a gradient; answered without elements
  kPull = 'L',   // name; answered by the value, when it may be seen
  kValue = 'V',  // the answer
  kError = 'E',  // the answer is a text
};

struct PsHeader {
  PsKind kind = PsKind::kValue;
  std::uint32_t worker = 0;
  std::uint32_t text = 0;      // bytes of name or error, up to kMaxPsText
  std::uint64_t elements = 0;  // up to kMaxPsElements
  std::uint64_t clock = 0;     // of a value: updates that are in it
  bool operator==(const PsHeader&) const = default;

  // Bytes that follow.
  [[nodiscard]] std::size_t body() const { return text + elements * sizeof(float); }
};

// Requires fields in range.
void encode_ps_header(const PsHeader& header, std::span<std::byte, kPsHeaderSize> out);
// Anything but kNone: the stream cannot be trusted further.
[[nodiscard]] WireError decode_ps_header(std::span<const std::byte, kPsHeaderSize> in,
                                         PsHeader& out);

}  // namespace thalweg
