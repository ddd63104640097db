#include "wire/checked_bytes.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "wire/byte_io.h"
#include "wire/checksum.h"

namespace thalweg::wire {
namespace {

constexpr std::size_t kCheckedHeadSize = sizeof(std::uint32_t) + kHeaderChecksSize;

}  // namespace

void put_checked_bytes(std::span<const std::byte> plain, std::vector<std::byte>& out) {
  while (!plain.empty()) {
    const std::span<const std::byte> part = plain.first(std::min(plain.size(), kMaxCheckedBytes));
    plain = plain.subspan(part.size());
    std::array<std::byte, kCheckedHeadSize> head;
    ByteWriter(head).put(static_cast<std::uint32_t>(part.size()));
    put_header_checks(head, crc32c(part));
    out.insert(out.end(), head.begin(), head.end());
    out.insert(out.end(), part.begin(), part.end());
  }
}

WireError take_checked_bytes(std::span<const std::byte>& bytes, std::vector<std::byte>& plain) {
  while (!bytes.empty()) {
    if (bytes.size() < kCheckedHeadSize) return WireError::kShort;
    const std::span<const std::byte> head = bytes.first(kCheckedHeadSize);
    const std::optional<std::uint32_t> expected = take_header_checks(head);
    if (!expected) return WireError::kChecksum;
    const std::size_t size = ByteReader(head).get<std::uint32_t>();
    if (size == 0 || size > kMaxCheckedBytes) return WireError::kLength;
    if (bytes.size() - head.size() < size) return WireError::kShort;
    const std::span<const std::byte> part = bytes.subspan(head.size(), size);
    if (crc32c(part) != *expected) return WireError::kChecksum;
    plain.insert(plain.end(), part.begin(), part.end());
    bytes = bytes.subspan(head.size() + size);
  }
  return WireError::kNone;
}

}  // namespace thalweg::wire
