// A stream of bytes, encrypted and authenticated record by record (wire/record_cipher.h), for
// protocols that have messages of their own, such as the store's. A record:
//
//   offset bytes field
//   0      4     bytes of the record after these four: 16 more than it holds
//   4      L     L bytes of the stream, encrypted; from 1 to kMaxSealedBytes
//   4 + L  16    tag of all that comes before it
//
// The end of the stream has no record of its own: what ends in the midst of a message is an error
// of that protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "wire/record_cipher.h"
#include "wire/wire.h"

namespace thalweg::wire {

inline constexpr std::size_t kMaxSealedBytes = std::size_t{16} << 10;

class BytesSealer {
 public:
  explicit BytesSealer(const StreamSecret& secret)
      : cipher_(secret, RecordCipher::Direction::kSeal) {}

  // Appends to `out` the records of `plain`.
  void seal(std::span<const std::byte> plain, std::vector<std::byte>& out);

 private:
  RecordCipher cipher_;
  std::uint64_t next_ = 0;
};

class BytesOpener {
 public:
  explicit BytesOpener(const StreamSecret& secret)
      : cipher_(secret, RecordCipher::Direction::kOpen) {}

  // Takes all complete records from the front of `bytes`, and appends to `plain` what they hold.
  // kNone or kShort: more bytes may follow. kLength, kChecksum: this is not what the other end
  // sealed, and nothing that follows can be trusted; nothing of that record is in `plain`.
  [[nodiscard]] WireError open(std::span<const std::byte>& bytes, std::vector<std::byte>& plain);

 private:
  RecordCipher cipher_;
  std::uint64_t next_ = 0;
};

// Both directions of a stream at one of its ends.
struct BytesSeal {
  BytesSeal(const StreamSecret& own, const StreamSecret& others) : out(own), in(others) {}
  BytesSealer out;
  BytesOpener in;
};

}  // namespace thalweg::wire
