#include "wire/checksum.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "wire/byte_io.h"

namespace thalweg::wire {
namespace {

std::uint32_t extend(std::uint32_t crc, std::span<const std::byte> bytes) {
  constexpr std::size_t kMost = std::numeric_limits<int>::max();
  while (!bytes.empty()) {
    const std::span<const std::byte> part = bytes.first(std::min(bytes.size(), kMost));
    // ISA-L only reads, though its prototype does not say so.
    auto* data =
        const_cast<std::byte*>(part.data());  // NOLINT(cppcoreguidelines-pro-type-const-cast)
    crc = crc32_iscsi(reinterpret_cast<unsigned char*>(data), static_cast<int>(part.size()), crc);
    bytes = bytes.subspan(part.size());
  }
  return crc;
}

std::uint32_t on_the_wire(std::uint32_t crc) { return crc == 0 ? ~crc : crc; }

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> first, std::span<const std::byte> second) {
  return ~extend(extend(~std::uint32_t{0}, first), second);
}

void Crc32c::add(std::span<const std::byte> bytes) { state_ = extend(state_, bytes); }

void put_header_checks(std::span<std::byte> header, std::uint32_t payload) {
  CHECK(header.size() > kHeaderChecksSize);
  ByteWriter(header.last(kHeaderChecksSize)).put(payload);
  ByteWriter(header.last(kChecksumSize)).put(crc32c(header.first(header.size() - kChecksumSize)));
}

std::optional<std::uint32_t> take_header_checks(std::span<const std::byte> header) {
  CHECK(header.size() > kHeaderChecksSize);
  const auto covered = header.first(header.size() - kChecksumSize);
  const auto sent = ByteReader(header.last(kChecksumSize)).get<std::uint32_t>();
  if (sent != crc32c(covered)) return std::nullopt;
  return ByteReader(header.last(kHeaderChecksSize)).get<std::uint32_t>();
}

void put_checksum(std::span<std::byte> first, std::span<const std::byte> second) {
  CHECK(first.size() >= kChecksumSize);
  const auto covered = first.first(first.size() - kChecksumSize);
  ByteWriter writer(first.last(kChecksumSize));
  writer.put(on_the_wire(crc32c(covered, second)));
}

bool has_checksum(std::span<const std::byte> first) {
  if (first.size() < kChecksumSize) return false;
  return ByteReader(first.last(kChecksumSize)).get<std::uint32_t>() != 0;
}

bool checksum_holds(std::span<const std::byte> first, std::span<const std::byte> second) {
  if (first.size() < kChecksumSize) return false;
  const auto covered = first.first(first.size() - kChecksumSize);
  const auto sent = ByteReader(first.last(kChecksumSize)).get<std::uint32_t>();
  return sent == 0 || sent == on_the_wire(crc32c(covered, second));
}

}  // namespace thalweg::wire
