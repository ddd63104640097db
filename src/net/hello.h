// The first bytes on a connection, each way: who speaks, and where its data comes from.
//
//   offset bytes field
//   0      4     "TLWG"
//   4      1     version of the protocol; 0 to 4 are the same in all versions
//   5      1     0: hello; else a refusal, and why (HelloStatus)
//   6      2     UDP port
//   8      8     job token; 0 in a refusal
//   16     4     the most payload that its path takes in one packet
//   20     4     0
//   24     1     length of the name, at most 63
//   25     63    name, then zeros
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "wire/wire.h"

namespace thalweg {

enum class HelloStatus : std::uint8_t { kHello, kWrongToken, kWrongVersion, kNoRoom };
inline constexpr int kHelloStatusCount = 4;

struct Hello {
  HelloStatus status = HelloStatus::kHello;
  JobToken job = 0;
  std::uint16_t udp_port = 0;
  std::uint32_t payload = 0;
  std::string name;  // printable ASCII
  bool operator==(const Hello&) const = default;
};

inline constexpr std::size_t kHelloSize = 88;
inline constexpr std::size_t kMaxPeerName = 63;

// Requires a name of at most kMaxPeerName bytes.
[[nodiscard]] std::array<std::byte, kHelloSize> encode_hello(const Hello& hello);
// kVersion: of another version; nothing else of it is known.
[[nodiscard]] WireError decode_hello(std::span<const std::byte, kHelloSize> bytes, Hello& out);
// Why a peer refuses us.
[[nodiscard]] const char* describe(HelloStatus status);

}  // namespace thalweg
