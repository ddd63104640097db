// Data packets: whatever is accepted encodes back to the same bytes.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "wire/data_header.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace thalweg;
  const auto packet = std::as_bytes(std::span(data, size));
  DataHeader header;
  if (decode_data_header(packet, header) != WireError::kNone) return 0;
  std::array<std::byte, kDataHeaderSize> again{};
  encode_data_header(header, again);
  CHECK(std::ranges::equal(again, packet.first(kDataHeaderSize)));
  CHECK(data_payload(packet, header).size() + data_overhead(header.keyed) == size);
  return 0;
}
