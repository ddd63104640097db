// Headers of frames between ranks: whatever is accepted encodes back to the same bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "wire/frame.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace thalweg;
  if (size < kFrameSize) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).first<kFrameSize>();
  Frame frame;
  if (decode_frame(bytes, frame) != WireError::kNone) return 0;
  CHECK(std::ranges::equal(encode_frame(frame), bytes));
  const bool is_data = frame.kind == FrameKind::kData || frame.kind == FrameKind::kLaneData;
  CHECK(frame.length <= (is_data ? kMaxFrameData : kMaxFrameText));
  return 0;
}
