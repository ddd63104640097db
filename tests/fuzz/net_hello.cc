// The first bytes of a connection: whatever is accepted encodes back to the same bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "net/auth/hello.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace thalweg;
  using namespace thalweg::net;
  if (size != kHelloSize) return 0;
  const std::span<const std::byte, kHelloSize> bytes(reinterpret_cast<const std::byte*>(data),
                                                     kHelloSize);
  Hello hello;
  if (decode_hello(bytes, hello) != wire::WireError::kNone) return 0;
  CHECK(std::ranges::equal(encode_hello(hello), bytes));
  return 0;
}
