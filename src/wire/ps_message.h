// The messages between a parameter server and its clients over TCP (docs/parameter-server.md): a
// header, then a payload: a name or text, and then elements (float32) or other bytes.
//
// A hello says whether the messages that follow it, both ways, carry checksums as frames do
// (wire/frame.h): then two CRC-32C follow the header, of the payload and of the header. The hello
// itself and the answer to it always carry them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/checksum.h"
#include "wire/wire.h"

namespace thalweg::wire {

// The version of these messages, in their first byte.
inline constexpr std::uint8_t kPsVersion = 5;

inline constexpr std::size_t kPsHeaderSize = 32;
inline constexpr std::size_t kCheckedPsHeaderSize = kPsHeaderSize + kHeaderChecksSize;
inline constexpr std::size_t kMaxPsText = 1024;  // bytes of a name or an error
inline constexpr std::uint64_t kMaxPsElements = std::uint64_t{1} << 31;
inline constexpr std::uint32_t kMaxPsBytes = std::uint32_t{1} << 31;
inline constexpr std::uint32_t kNoPsWorker = ~std::uint32_t{0};

enum class PsKind : std::uint8_t {
  // Requests of a client:
  kHello = 'H',         // worker: the first request; answered by kWelcome
  kInit = 'I',          // name, elements: sets the value unless the tensor has one; answered by the
                        // tensor's value
  kPush = 'U',          // name, elements: a gradient; answered by kValue without elements
  kPull = 'L',          // name: answered by the value, once the worker may see it
  kPushTransfer = 'S',  // name, count, key: as kPush, but the elements come over DLCP
  kPullTransfer = 'R',  // name, count, key: as kPull, but the elements go over DLCP
  kJoin = 'J',          // text: the address of the worker's ATP socket; answered by kGroup
  kPushSum = 'X',       // name, count, group, bytes: the exponents of its blocks; answered by
                        // kJoinAgain, or by kGo and then as kPush, once the step is made
  // Answers of the server:
  kValue = 'V',
  kError = 'E',      // text: the error; clock: its ErrorCode; worker: to blame, or kNoPsWorker
  kWelcome = 'W',    // bytes: a PsWelcome
  kGroup = 'A',      // bytes: an AtpGroupGrant
  kGo = 'G',         // bytes: the largest exponents of all workers
  kJoinAgain = 'O',  // the group of the request is over
};

struct PsHeader {
  PsKind kind = PsKind::kValue;
  std::uint32_t worker = 0;    // in a hello: the worker's number; in an error: the one to blame
  std::uint32_t text = 0;      // bytes of the name or error, up to kMaxPsText
  std::uint32_t bytes = 0;     // size of a body that is not elements, up to kMaxPsBytes
  std::uint64_t elements = 0;  // up to kMaxPsElements
  // In a value: how many steps it includes. In transfers: their key. In kPushSum: the group.
  // In an error: its code.
  std::uint64_t clock = 0;
  bool checks = false;  // in a hello: the messages after it and its answer carry checksums
  bool operator==(const PsHeader&) const = default;

  // Whether the elements follow. Messages of other kinds only say how many there are.
  [[nodiscard]] bool carries_elements() const {
    return kind == PsKind::kInit || kind == PsKind::kPush || kind == PsKind::kValue;
  }
  // Bytes that follow the text.
  [[nodiscard]] std::size_t body() const {
    return bytes + (carries_elements() ? elements * sizeof(float) : 0);
  }
  // Bytes that follow the header: the text and the body.
  [[nodiscard]] std::size_t payload() const { return text + body(); }
};

// Requires fields in range.
void encode_ps_header(const PsHeader& header, std::span<std::byte, kPsHeaderSize> out);
// On anything but kNone the stream cannot be trusted any more.
[[nodiscard]] WireError decode_ps_header(std::span<const std::byte, kPsHeaderSize> in,
                                         PsHeader& out);

// The same with checksums. `payload`: that of the payload; 0 if there is none.
void encode_checked_ps_header(const PsHeader& header, std::uint32_t payload,
                              std::span<std::byte, kCheckedPsHeaderSize> out);
// kChecksum: the header changed on its way.
[[nodiscard]] WireError decode_checked_ps_header(
    std::span<const std::byte, kCheckedPsHeaderSize> in, PsHeader& out, std::uint32_t& payload);

}  // namespace thalweg::wire
