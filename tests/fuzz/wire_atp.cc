// ATP packets: whatever is accepted encodes back to the same bytes.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "wire/atp_packet.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace thalweg;
  const auto packet = std::as_bytes(std::span(data, size));
  AtpHeader header;
  if (decode_atp_header(packet, header) != WireError::kNone) return 0;
  CHECK(check_atp_header(header) == WireError::kNone);
  std::array<std::byte, kAtpHeaderSize> again{};
  encode_atp_header(header, again);
  CHECK(std::ranges::equal(again, packet.first(kAtpHeaderSize)));
  CHECK(atp_payload(packet, header).size() + atp_overhead(header.keyed) == size);
  return 0;
}
