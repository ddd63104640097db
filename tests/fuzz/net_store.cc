// Both directions of the store's protocol: whatever is accepted encodes back to the same bytes, and
// a table that gets it as a request keeps its limits.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "net/store/store_message.h"
#include "net/store/store_table.h"
#include "wire/checked_bytes.h"

namespace thalweg::net {
namespace {

template <class Message>
void take_all(std::span<const std::byte> stream, auto&& use) {
  Message message;
  for (auto left = stream; take_store(left, message) == wire::WireError::kNone; stream = left) {
    std::vector<std::byte> again;
    encode_store(message, again);
    CHECK(std::ranges::equal(again, stream.first(stream.size() - left.size())));
    use(message);
  }
}

}  // namespace
}  // namespace thalweg::net

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace thalweg;
  using namespace thalweg::net;
  const auto stream = std::as_bytes(std::span(data, size));
  if (size >= kStoreHelloSize) {
    StoreHello hello;
    const auto bytes = stream.first<kStoreHelloSize>();
    if (decode_store_hello(bytes, hello) == wire::WireError::kNone) {
      CHECK(std::ranges::equal(encode_store_hello(hello), bytes));
    }
  }
  std::vector<std::byte> plain;
  auto left = stream;
  static_cast<void>(wire::take_checked_bytes(left, plain));
  CHECK(plain.size() <= stream.size() - left.size());
  std::vector<std::byte> covered;
  wire::put_checked_bytes(plain, covered);
  std::vector<std::byte> again;
  std::span<const std::byte> all(covered);
  CHECK(wire::take_checked_bytes(all, again) == wire::WireError::kNone && again == plain);
  take_all<StoreReply>(stream, [](const StoreReply&) {});
  StoreTable table({.keys = 8, .bytes = 4096, .waiting = 4});
  StoreTable::Replies replies;
  std::size_t asked = 0;
  take_all<StoreRequest>(stream, [&](const StoreRequest& request) {
    const Time now = Time::at(Duration::milliseconds(static_cast<std::int64_t>(asked)));
    table.on_timeout(now, replies);
    table.on_request(now, asked++ % 3, request, replies);
    CHECK(table.keys() <= 8 && table.waiting() <= 4);
    CHECK(replies.size() + table.waiting() == asked);
  });
  return 0;
}
