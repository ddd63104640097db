// Headers between a parameter server and its clients: whatever is accepted encodes back to the same
// bytes and claims no more than the limits.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "wire/ps_message.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace thalweg;
  using namespace thalweg::wire;
  if (size < kPsHeaderSize) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).first<kPsHeaderSize>();
  PsHeader header;
  if (size >= kCheckedPsHeaderSize) {
    const auto checked = std::as_bytes(std::span(data, size)).first<kCheckedPsHeaderSize>();
    std::uint32_t payload = 0;
    if (decode_checked_ps_header(checked, header, payload) == WireError::kNone) {
      std::array<std::byte, kCheckedPsHeaderSize> again;
      encode_checked_ps_header(header, payload, again);
      CHECK(std::ranges::equal(again, checked));
    }
  }
  if (decode_ps_header(bytes, header) != WireError::kNone) return 0;
  std::array<std::byte, kPsHeaderSize> again;
  encode_ps_header(header, again);
  CHECK(std::ranges::equal(again, bytes));
  CHECK(header.text <= kMaxPsText);
  CHECK(header.body() <= kMaxPsElements * sizeof(float));
  CHECK(!header.checks || header.kind == PsKind::kHello);
  return 0;
}
