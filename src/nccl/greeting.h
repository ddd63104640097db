// How the streams of a connection begin, and what NCCL carries from the receiver to the sender.
//
// The receiver listens and gives NCCL a handle, which NCCL brings to the sender by its own means:
//
//   offset bytes field
//   0      8     "THALWEGN": no address family, so NCCL's own sockets refuse it
//   8      2     version; bytes 0 to 9 have this layout in all versions
//   10     1     4 or 6: the family of the address
//   11     1     1: the receiver holds a job key
//   12     2     port
//   14     2     0
//   16     16    address; of IPv4 the first 4 bytes
//   32     8     challenge that the receiver drew for this handle
//   40     8     0 from the receiver; the sender keeps the number of its attempt here between calls
//   48     80    0
//
// The sender connects the streams. On each it sends a hello, and the receiver answers:
//
//   hello                                          answer
//   0   8   "THALWEGS"                             0   8   "THALWEGA"
//   8   2   version                                8   2   version
//   10  1   1: with a key                          10  1   status (GreetingStatus)
//   11  1   number of this stream                  11  5   0
//   12  1   streams of the connection              16  32  with a key: proof; else 0
//   13  3   0
//   16  8   challenge of the handle
//   24  8   number that the sender drew for the connection
//   32  40  with a key: opening (net/auth/stream_key.h); else 0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>

#include "nccl/abi.h"
#include "net/auth/stream_key.h"
#include "net/io/address.h"
#include "wire/authenticate.h"

namespace thalweg::nccl {

inline constexpr std::uint16_t kGreetingVersion = 1;
inline constexpr std::size_t kMaxStreams = 16;
// What proofs of the job key are for, beside other uses of net/auth/stream_key.h.
inline constexpr std::uint64_t kKeySignature = 0x4c43434e;  // "NCCL"

struct Handle {
  net::SocketAddress address;  // with a port
  bool keyed = false;
  std::uint64_t challenge = 0;
  std::uint64_t attempt = 0;
};

struct StreamHello {
  bool keyed = false;
  std::uint8_t stream = 0;
  std::uint8_t streams = 1;
  std::uint64_t challenge = 0;
  std::uint64_t connection = 0;
  net::StreamKey::OpeningBytes opening = {};
};

enum class GreetingStatus : std::uint8_t { kWelcome, kWrongVersion, kWrongKey };

struct StreamAnswer {
  GreetingStatus status = GreetingStatus::kWelcome;
  wire::SessionProof proof = {};
};

// Why bytes were not taken. A version is told only if the mark before it is right.
enum class GreetingError : std::uint8_t { kForeign, kVersion };

inline constexpr std::size_t kGreetingPrefixSize = 10;  // mark and version
inline constexpr std::size_t kStreamHelloSize = 32 + net::StreamKey::kOpeningSize;
inline constexpr std::size_t kStreamAnswerSize = 16 + wire::kSessionProofSize;
using HandleBytes = std::array<std::byte, kNcclHandleSize>;
using StreamHelloBytes = std::array<std::byte, kStreamHelloSize>;
using StreamAnswerBytes = std::array<std::byte, kStreamAnswerSize>;

[[nodiscard]] HandleBytes encode_handle(const Handle& handle);
[[nodiscard]] std::variant<Handle, GreetingError> decode_handle(
    std::span<const std::byte, kNcclHandleSize> bytes);
[[nodiscard]] StreamHelloBytes encode_hello(const StreamHello& hello);
[[nodiscard]] std::variant<StreamHello, GreetingError> decode_hello(
    std::span<const std::byte, kStreamHelloSize> bytes);
// What is wrong with the first bytes of a hello, before the others have come; none: nothing.
[[nodiscard]] std::optional<GreetingError> check_hello_prefix(
    std::span<const std::byte, kGreetingPrefixSize> bytes);
[[nodiscard]] StreamAnswerBytes encode_answer(const StreamAnswer& answer);
[[nodiscard]] std::variant<StreamAnswer, GreetingError> decode_answer(
    std::span<const std::byte, kStreamAnswerSize> bytes);

// One piece of a message: the header before its bytes on a stream. Any stream may carry any piece.
//
//   0   8   number of the message, counted from 0
//   8   8   bytes of the whole message
//   16  8   where the piece begins
//   24  4   bytes of the piece; 0 only if the message is empty
//   28  4   "TWNP"
struct Piece {
  std::uint64_t message = 0;
  std::uint64_t size = 0;
  std::uint64_t offset = 0;
  std::uint32_t length = 0;
};
inline constexpr std::size_t kPieceHeaderSize = 32;
using PieceHeader = std::array<std::byte, kPieceHeaderSize>;
[[nodiscard]] PieceHeader encode_piece(const Piece& piece);
// None: no header, or one whose piece is not within its message.
[[nodiscard]] std::optional<Piece> decode_piece(std::span<const std::byte, kPieceHeaderSize> bytes);

}  // namespace thalweg::nccl
