// Encrypts and authenticates one direction of a TCP stream, record by record: AES-128-GCM (NIST SP
// 800-38D) with all 16 bytes of the tag, by OpenSSL's EVP, or by WideGcm where the processor can.
//
// GCM is broken if one nonce is used twice under a key, so neither is ever chosen. Each direction
// of each stream has a secret of its own, which both ends derive from the job key and from numbers
// that they drew for the stream (net/auth/stream_key.h). The secret gives the AES key and a base of
// nonces:
//
//   key, base = HMAC-SHA-256(secret, label, g)    16 and 12 bytes; g = number / kRecordsPerKey
//   nonce     = base XOR number
//
// The number counts records, from 0, and is never sent. So a record that was changed, left out,
// repeated or moved fails its tag, and so does everything after it. A new key every kRecordsPerKey
// records keeps what is encrypted under one key below the 2^38 bytes or so that TLS 1.3 recommends
// (RFC 8446, 5.5), at the lengths that streams use.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "wire/wire.h"

namespace thalweg::wire {

inline constexpr std::size_t kStreamSecretSize = 32;
using StreamSecret = std::array<std::byte, kStreamSecretSize>;

inline constexpr std::uint64_t kRecordsPerKey = std::uint64_t{1} << 22;

// Neither copied nor shared between threads.
class RecordCipher {
 public:
  enum class Direction : std::uint8_t { kSeal, kOpen };
  enum class Code : std::uint8_t { kFastest, kOpenSsl };

  RecordCipher(const StreamSecret& secret, Direction direction,
               std::uint64_t records_per_key = kRecordsPerKey, Code code = Code::kFastest);
  ~RecordCipher();
  RecordCipher(RecordCipher&&) noexcept;
  RecordCipher& operator=(RecordCipher&&) noexcept;

  // Encrypts `plain` into `out`, which has the same size and may be the same memory, and returns
  // the tag. It also covers `clear`, which is sent as it is. Requires kSeal, and a number that no
  // record had before.
  [[nodiscard]] KeyedTag seal(std::uint64_t number, std::span<const std::byte> plain,
                              std::span<std::byte> out, std::span<const std::byte> clear = {});

  // Decrypts a record that comes in parts: begin_open(), open_part() for each, end_open(), which
  // says whether the record is the one that was sealed under this number. Nothing of `out` may be
  // used before that. A record may be left in the midst. Requires kOpen.
  void begin_open(std::uint64_t number, std::span<const std::byte> clear = {});
  void open_part(std::span<const std::byte> sealed, std::span<std::byte> out);
  [[nodiscard]] bool end_open(const KeyedTag& tag);

 private:
  struct Context;
  // Sets the key of this record, if it is another, and the nonce.
  void begin(std::uint64_t number, std::span<const std::byte> clear);
  void update(std::span<const std::byte> in, std::byte* out);

  StreamSecret secret_;
  Direction direction_;
  std::uint64_t records_per_key_;
  std::optional<std::uint64_t> key_number_;  // which of the keys is set
  std::unique_ptr<Context> context_;
};

}  // namespace thalweg::wire
