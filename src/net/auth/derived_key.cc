#include "net/auth/derived_key.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "wire/byte_io.h"

namespace thalweg::net {

wire::JobKey derived_key(const wire::JobKey& job_key, KeyPurpose purpose, std::uint64_t salt) {
  std::array<std::byte, sizeof(salt)> bytes;
  wire::ByteWriter(bytes).put(salt);
  const wire::SessionProof derived =
      wire::prove_session(job_key, static_cast<std::uint32_t>(purpose), bytes, {});
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
