// A stream of control messages: whatever is accepted encodes back to the same bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "wire/checksum.h"
#include "wire/control_message.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace thalweg;
  using namespace thalweg::wire;
  std::vector<std::byte> input(size);
  std::ranges::copy(std::as_bytes(std::span(data, size)), input.begin());
  auto stream = std::span(input);
  std::vector<std::byte> again;
  while (true) {
    std::size_t length = 0;
    if (peek_control(stream, length) != WireError::kNone) return 0;
    CHECK(length >= kControlHeaderSize && length <= kMaxControlSize);
    if (length > stream.size()) return 0;
    ControlMessage message;
    ControlEnvelope about;
    // A wrong checksum would hide the rest of the message.
    if (decode_control(stream.first(length), message, about) == WireError::kChecksum) {
      put_checksum(stream.first(length));
    }
    if (decode_control(stream.first(length), message, about) == WireError::kNone) {
      CHECK(control_size(message, about) == length);
      again.resize(length);
      encode_control(message, about, again);
      const std::size_t covered = length - (about.keyed ? kKeyedTagSize : 0);
      CHECK(std::ranges::equal(std::span(again).first(covered), stream.first(covered)));
    }
    stream = stream.subspan(length);
  }
}
