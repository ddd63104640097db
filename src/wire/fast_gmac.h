// AES-128-GMAC (NIST SP 800-38D) with nonces of 12 bytes, for many short messages under one key, by
// instructions of x86. OpenSSL 3.0 takes most of its time for a packet to set up and to multiply on
// 128 bits; this code multiplies on as many bits as the processor can, keeps so many powers of the
// hash key that a packet is reduced once, and allocates nothing after its construction
// (docs/measurements/2026-11-19-keyed-packets.md). Gmac uses it where it is supported, and OpenSSL
// elsewhere; both give the same tags.
//
// All steps take a time that does not depend on keys or bytes: there are no tables and no branches
// on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "wire/wire.h"

namespace thalweg::wire {

class FastGmac {
 public:
  static constexpr std::size_t kKeySize = 16;
  static constexpr std::size_t kNonceSize = 12;

  // How many bits VPCLMULQDQ takes at once.
  enum class Width : std::uint8_t { k256, k512 };
  // Those that this processor can, the widest last. None: there must be no FastGmac.
  [[nodiscard]] static std::span<const Width> widths();

  FastGmac(std::span<const std::byte, kKeySize> key, Width width);
  // Forgets the key.
  ~FastGmac();
  FastGmac(const FastGmac&) = delete;
  FastGmac& operator=(const FastGmac&) = delete;

  // The tag of `first` followed by `second`, together less than 2^36 bytes.
  [[nodiscard]] KeyedTag tag(std::span<const std::byte, kNonceSize> nonce,
                             std::span<const std::byte> first,
                             std::span<const std::byte> second) const;

 private:
  struct State;
  struct Work;
  std::unique_ptr<State> state_;
};

}  // namespace thalweg::wire
