// What a client sends to a parameter server: requests in pieces, with checksums and without. Memory
// stays within what has arrived, and every request that is complete fits its header.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "ps/request_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace thalweg;
  using namespace thalweg::ps;
  auto left = std::as_bytes(std::span(data, size));
  RequestReader reader;
  for (std::size_t piece = 1; !left.empty(); piece = piece % 61 + 7) {
    const std::span<std::byte> room = reader.room();
    CHECK(!room.empty() && room.size() <= RequestReader::kStep);
    const std::size_t now = std::min({piece, room.size(), left.size()});
    std::ranges::copy(left.first(now), room.begin());
    left = left.subspan(now);
    switch (reader.on_received(now)) {
      case RequestReader::Progress::kMore:
        break;
      case RequestReader::Progress::kNamed:
        if (reader.header().elements % 2 == 1) reader.refuse(Error("odd"));
        break;
      case RequestReader::Progress::kComplete:
        CHECK(reader.text().size() == reader.header().text);
        CHECK(reader.refusal() || reader.body().size() == reader.header().body());
        reader.next();
        break;
      case RequestReader::Progress::kChanged:
        CHECK(reader.answer_checked());
        reader.next();
        break;
      case RequestReader::Progress::kSpoiled:
      case RequestReader::Progress::kVersion:
      case RequestReader::Progress::kBad:
        return 0;
    }
  }
  return 0;
}
