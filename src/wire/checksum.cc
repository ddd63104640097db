#include "wire/checksum.h"

#include <isa-l/crc.h>

#include <limits>

#include "base/check.h"
#include "wire/byte_io.h"

namespace thalweg::wire {
namespace {

std::uint32_t extend(std::uint32_t crc, std::span<const std::byte> bytes) {
  CHECK(bytes.size() <= std::numeric_limits<int>::max());
  // ISA-L only reads, though its prototype does not say so.
  auto* data =
      const_cast<std::byte*>(bytes.data());  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  return crc32_iscsi(reinterpret_cast<unsigned char*>(data), static_cast<int>(bytes.size()), crc);
}

std::uint32_t on_the_wire(std::uint32_t crc) { return crc == 0 ? ~crc : crc; }

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> first, std::span<const std::byte> second) {
  return ~extend(extend(~std::uint32_t{0}, first), second);
}

void Crc32c::add(std::span<const std::byte> bytes) { state_ = extend(state_, bytes); }

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
