#include "net/auth/atp_key.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "wire/byte_io.h"

namespace thalweg::net {
namespace {

// Differs from the roles of all provers (net/auth/stream_key.cc, net/auth/key_exchange.h), so that
// no proof that goes over the network is the key of a job.
constexpr std::uint32_t kAtpKey = 0x200;

}  // namespace

wire::JobKey atp_key(const wire::JobKey& job_key, std::uint64_t salt) {
  std::array<std::byte, sizeof(salt)> bytes;
  wire::ByteWriter(bytes).put(salt);
  const wire::SessionProof derived = wire::prove_session(job_key, kAtpKey, bytes, {});
  std::array<std::byte, wire::kJobKeySize> key;
  std::copy_n(derived.begin(), key.size(), key.begin());
  return wire::JobKey(key);
}

std::string hex_of(const wire::JobKey& key) {
  std::string text;
  for (const std::byte b : key.bytes()) text += fmt::format("{:02x}", static_cast<unsigned>(b));
  return text;
}

}  // namespace thalweg::net
