// Data packets: whatever is accepted encodes back to the same bytes.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "wire/data_header.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace thalweg;
  using namespace thalweg::wire;
  const auto packet = std::as_bytes(std::span(data, size));
  DataHeader header;
  if (decode_data_header(packet, header) != WireError::kNone) return 0;
  std::array<std::byte, kDataHeaderSize> again{};
  encode_data_header(header, again);
  CHECK(std::ranges::equal(again, packet.first(kDataHeaderSize)));
  CHECK(data_payload(packet, header).size() + data_overhead(header.keyed) == size);
  std::vector<std::byte> whole(packet.begin(), packet.end());
  const auto head = std::span(whole).first(data_overhead(false));
  if (header.keyed) return 0;
  put_checksum(head, std::span(whole).subspan(head.size()));
  CHECK(data_is_intact(whole));
  // No checksum is as good as the right one.
  const auto sent = packet.subspan(kDataHeaderSize, kChecksumSize);
  const bool none = std::ranges::all_of(sent, [](std::byte b) { return b == std::byte{0}; });
  CHECK(data_is_intact(packet) == (none || std::ranges::equal(whole, packet)));
  return 0;
}
