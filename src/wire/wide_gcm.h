// AES-128-GCM (NIST SP 800-38D) with nonces of 12 bytes, by the instructions VAES and VPCLMULQDQ on
// 256 bits. OpenSSL 3.0 has no code for them: on a processor that has them this is about twice as
// fast with long records, and several times as fast with short ones, where most of OpenSSL's time
// is setting up (docs/measurements/2026-11-18-encryption.md). RecordCipher uses it where it is
// supported, and OpenSSL elsewhere; both give the same bytes.
//
// All steps take a time that does not depend on keys or bytes: there are no tables and no branches
// on them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "wire/wire.h"

namespace thalweg::wire {

class WideGcm {
 public:
  static constexpr std::size_t kKeySize = 16;
  static constexpr std::size_t kNonceSize = 12;

  // Whether this processor has the instructions. Nothing else may be called otherwise.
  [[nodiscard]] static bool supported();

  WideGcm();
  // Forgets the key.
  ~WideGcm();
  WideGcm(const WideGcm&) = delete;
  WideGcm& operator=(const WideGcm&) = delete;

  void set_key(std::span<const std::byte, kKeySize> key);
  // Begins a record. `clear` is covered by the tag and not encrypted.
  void begin(std::span<const std::byte, kNonceSize> nonce, std::span<const std::byte> clear);
  // The next bytes of the record. `out` is as long as `in`, and may be the same memory. A record is
  // less than 2^36 bytes.
  void encrypt(std::span<const std::byte> in, std::byte* out);
  void decrypt(std::span<const std::byte> in, std::byte* out);
  // The tag of what was encrypted or decrypted since begin().
  [[nodiscard]] KeyedTag tag();

 private:
  struct State;
  struct Work;
  std::unique_ptr<State> state_;
};

}  // namespace thalweg::wire
