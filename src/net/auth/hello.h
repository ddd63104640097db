// The first bytes that each end sends on a TCP connection: who it is, and from which UDP port its
// data comes.
//
//   offset bytes field
//   0      4     "TLWG"
//   4      1     version of the protocol; bytes 0 to 4 have this layout in all versions
//   5      1     0: hello; otherwise a refusal and its cause (HelloStatus)
//   6      2     UDP port
//   8      8     job token; 0 in a refusal
//   16     4     the largest payload, in bytes, of one packet on the path from this end
//   20     1     1: this end holds the job key; 0: it holds none
//   21     1     how many UDP ports follow that one, each a path of its own (docs/transport.md)
//   22     2     0
//   24     8     with a key: the session number that this end drew for the connection; else 0
//   32     1     length of the name, at most 63
//   33     63    name, then zeros
//
// With a key the answer is followed by a SessionProof, and the end that connected then sends its
// own. Both proofs cover the first hello followed by the answer (wire/authenticate.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <thalweg/result.h>

#include "wire/control_message.h"
#include "wire/wire.h"

namespace thalweg::net {

enum class HelloStatus : std::uint8_t {
  kHello,
  kWrongToken,
  kWrongVersion,
  kNoRoom,
  kKeyless,    // the end that refuses holds no job key; the other end holds one
  kKeyNeeded,  // the end that refuses holds a job key; the other end holds none
};
inline constexpr int kHelloStatusCount = 6;

struct Hello {
  HelloStatus status = HelloStatus::kHello;
  wire::JobToken job = 0;
  std::uint16_t udp_port = 0;  // the first of `paths` consecutive ports
  std::uint8_t paths = 1;      // 1 to kMaxPaths
  std::uint32_t payload = 0;   // bytes
  bool keyed = false;
  std::uint64_t session = 0;
  std::string name;  // printable ASCII
  bool operator==(const Hello&) const = default;
};

inline constexpr std::size_t kHelloSize = 96;
inline constexpr std::size_t kMaxPeerName = 63;
inline constexpr std::uint8_t kMaxPaths = wire::kMaxReportPaths;

// Requires a name of at most kMaxPeerName bytes.
[[nodiscard]] std::array<std::byte, kHelloSize> encode_hello(const Hello& hello);
// kVersion: the hello has another version of the protocol, and nothing else of it is known.
[[nodiscard]] wire::WireError decode_hello(std::span<const std::byte, kHelloSize> bytes,
                                           Hello& out);
// Texts for the cause: describe() when a peer refuses us, describe_refused() when we refuse a peer.
[[nodiscard]] const char* describe(HelloStatus status);
// The code of a refusal with this status.
[[nodiscard]] constexpr ErrorCode code_of(HelloStatus status) {
  return status == HelloStatus::kNoRoom ? ErrorCode::kNoResource : ErrorCode::kMismatch;
}
[[nodiscard]] const char* describe_refused(HelloStatus status);

}  // namespace thalweg::net
