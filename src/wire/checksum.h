// The check that every packet and control message of DLCP without a job key carries, and every
// frame on streams between ranks: CRC-32C (Castagnoli), by ISA-L at 20 GB/s and more.
//
// Ethernet checks each link, but not what happens inside a switch or a network card, and the
// checksums of TCP and UDP do not notice two 16-bit words that changed places. With a job key the
// keyed tag covers the same bytes.
//
// In packets and messages of DLCP, as in UDP, 0 on the wire means that the sender computed none; a
// checksum that is 0 is sent as all ones. In frames 0 has no such meaning (frame.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace thalweg::wire {

inline constexpr std::size_t kChecksumSize = 4;

// The checksum of `first` followed by `second`.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> first,
                                   std::span<const std::byte> second = {});

// The checksum of bytes that come in parts.
class Crc32c {
 public:
  void add(std::span<const std::byte> bytes);
  [[nodiscard]] std::uint32_t value() const { return ~state_; }

 private:
  std::uint32_t state_ = ~std::uint32_t{0};
};

// The checks of a header that stands before a payload on a stream: the payload's checksum, 0 if
// there is no payload, and that of all bytes of the header before it.
inline constexpr std::size_t kHeaderChecksSize = 2 * kChecksumSize;
// Writes them in the last kHeaderChecksSize bytes of `header`.
void put_header_checks(std::span<std::byte> header, std::uint32_t payload);
// The payload's checksum; none if the header changed on its way.
[[nodiscard]] std::optional<std::uint32_t> take_header_checks(std::span<const std::byte> header);

// Writes it in the last kChecksumSize bytes of `first`, which it does not cover.
void put_checksum(std::span<std::byte> first, std::span<const std::byte> second = {});
// Whether the last kChecksumSize bytes of `first` are a checksum: they are not 0.
[[nodiscard]] bool has_checksum(std::span<const std::byte> first);
// Whether put_checksum() wrote these bytes, or no checksum is there.
[[nodiscard]] bool checksum_holds(std::span<const std::byte> first,
                                  std::span<const std::byte> second = {});

}  // namespace thalweg::wire
