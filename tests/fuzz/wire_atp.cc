// ATP packets: whatever is accepted encodes back to the same bytes. A header check that is wrong is
// made right, so that the fields are tried, too.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "wire/atp_packet.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace thalweg;
  using namespace thalweg::wire;
  std::vector<std::byte> packet(size);
  std::ranges::copy(std::as_bytes(std::span(data, size)), packet.begin());
  AtpHeader header;
  if (decode_atp_header(packet, header) == WireError::kChecksum) put_atp_header_check(packet);
  if (decode_atp_header(packet, header) != WireError::kNone) return 0;
  CHECK(check_atp_header(header) == WireError::kNone);
  std::array<std::byte, kAtpHeaderSize> again{};
  encode_atp_header(header, again);
  CHECK(std::ranges::equal(again, std::span(packet).first(kAtpHeaderSize)));
  CHECK(atp_payload(packet, header).size() + atp_overhead(header.keyed) == size);
  return 0;
}
