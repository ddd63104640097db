// A stream of bytes with checksums for each record, for protocols that have messages of their own,
// such as the store's, where there is no job key (with one: wire/sealed_bytes.h). A record:
//
//   offset bytes field
//   0      4     how many bytes of the stream it holds, L: from 1 to kMaxCheckedBytes
//   4      4     CRC-32C of these L bytes
//   8      4     CRC-32C of the 8 bytes before, so that nobody waits for bytes that do not come
//   12     L     L bytes of the stream
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "wire/wire.h"

namespace thalweg::wire {

inline constexpr std::size_t kMaxCheckedBytes = std::size_t{16} << 10;

// Appends to `out` the records of `plain`.
void put_checked_bytes(std::span<const std::byte> plain, std::vector<std::byte>& out);

// Takes all complete records from the front of `bytes`, and appends to `plain` what they hold.
// kNone or kShort: more bytes may follow. kLength, kChecksum: the bytes changed on their way, and
// nothing that follows can be trusted; nothing of that record is in `plain`.
[[nodiscard]] WireError take_checked_bytes(std::span<const std::byte>& bytes,
                                           std::vector<std::byte>& plain);

}  // namespace thalweg::wire
