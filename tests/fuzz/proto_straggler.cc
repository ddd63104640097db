// Messages of allreduces with a straggler bound: whatever is accepted encodes back to the same
// bytes, and a group takes any of them without harm.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "proto/straggler/group.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace thalweg;
  using namespace thalweg::proto;
  constexpr int kRanks = 4;
  constexpr std::size_t kBytes = straggler_message_bytes(kRanks);
  StragglerGroup group(0, kRanks);
  const StragglerCall call{.layout = StragglerLayout::of(1 << 16, 4, kRanks), .bound = 0.5};
  Time now;
  group.start(now, call);
  const std::span<const std::byte> input = std::as_bytes(std::span(data, size));
  for (std::size_t at = 0; at + 1 + kBytes <= size; at += 1 + kBytes) {
    const auto bytes = input.subspan(at + 1, kBytes);
    now += Duration::milliseconds(data[at] >> 2U);
    StragglerMessage message;
    if (decode(bytes, kRanks, message)) {
      std::vector<std::byte> again(kBytes);
      encode(message, kRanks, again);
      CHECK(std::memcmp(again.data(), bytes.data(), kBytes) == 0);
      group.on_message(now, 1 + (data[at] & 3U) % 3, message);
    }
    group.on_timeout(now);
    StragglerGroup::Outgoing out;
    while (group.poll_transmit(out)) CHECK(out.to > 0 && out.to < kRanks);
    StragglerEvent event;
    while (group.poll_event(event)) {
    }
  }
  return 0;
}
