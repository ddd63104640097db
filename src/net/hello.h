// The first bytes on a connection, each way: who speaks, and where its data comes from.
//
//   offset bytes field
//   0      4     "TLWG"
//   4      1     version of the protocol; 0 to 4 are the same in all versions
//   5      1     0: hello; else a refusal, and why (HelloStatus)
//   6      2     UDP port
//   8      8     job token; 0 in a refusal
//   16     4     the most payload that its path takes in one packet
//   20     1     1: this end holds the job key; 0: it holds none
//   21     3     0
//   24     8     with a key: the session number that this end drew for the connection; else 0
//   32     1     length of the name, at most 63
//   33     63    name, then zeros
//
// With a key the answer is followed by a SessionProof, and the first speaker sends its own: each
// over the hello that was said first and then the answer (wire/authenticate.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "wire/wire.h"

namespace thalweg {

enum class HelloStatus : std::uint8_t {
  kHello,
  kWrongToken,
  kWrongVersion,
  kNoRoom,
  kKeyless,    // who refuses holds no job key, and the other does
  kKeyNeeded,  // the other way round
};
inline constexpr int kHelloStatusCount = 6;

struct Hello {
  HelloStatus status = HelloStatus::kHello;
  JobToken job = 0;
  std::uint16_t udp_port = 0;
  std::uint32_t payload = 0;
  bool keyed = false;
  std::uint64_t session = 0;
  std::string name;  // printable ASCII
  bool operator==(const Hello&) const = default;
};

inline constexpr std::size_t kHelloSize = 96;
inline constexpr std::size_t kMaxPeerName = 63;

// Requires a name of at most kMaxPeerName bytes.
[[nodiscard]] std::array<std::byte, kHelloSize> encode_hello(const Hello& hello);
// kVersion: of another version; nothing else of it is known.
[[nodiscard]] WireError decode_hello(std::span<const std::byte, kHelloSize> bytes, Hello& out);
// Why a peer refuses us, and why we refuse one.
[[nodiscard]] const char* describe(HelloStatus status);
[[nodiscard]] const char* describe_refused(HelloStatus status);

}  // namespace thalweg
