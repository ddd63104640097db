// Headers of frames between ranks, without checksums and with: whatever is accepted encodes back to
// the same bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/check.h"
#include "wire/frame.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace thalweg;
  using namespace thalweg::wire;
  if (size < kFrameSize) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).first<kFrameSize>();
  Frame frame;
  if (decode_frame(bytes, frame) != WireError::kNone) return 0;
  CHECK(std::ranges::equal(encode_frame(frame), bytes));
  const bool is_data = frame.kind == FrameKind::kData || frame.kind == FrameKind::kLaneData;
  CHECK(frame.length <= (is_data ? kMaxFrameData : kMaxFrameText));
  const std::uint32_t payload = size % 2 == 0 ? 0 : ~std::uint32_t{0};
  auto checked = encode_checked_frame(frame, payload);
  Frame again;
  std::uint32_t found = 0;
  const WireError error = decode_checked_frame(checked, again, found);
  CHECK(error == (frame.length > kMaxCheckedData ? WireError::kLength : WireError::kNone));
  CHECK(found == payload && again == frame);
  // One wrong byte, or two that changed places.
  const std::size_t first = 1 + size % (kCheckedFrameSize - 1);
  const std::size_t second = 1 + data[0] % (kCheckedFrameSize - 1);
  std::swap(checked[first], checked[second]);
  if (checked[first] == checked[second]) checked[first] ^= std::byte{0x40};
  CHECK(decode_checked_frame(checked, again, found) == WireError::kChecksum);
  return 0;
}
