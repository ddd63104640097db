// Recordings: whatever a file says, the reader refuses it or replays it, within its limits. Damaged
// blocks are refused; the records inside are then played as they are.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "proto/dlcp/record_codec.h"
#include "proto/dlcp/replay.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace thalweg;
  const auto bytes = std::as_bytes(std::span(data, size));
  constexpr ReplayLimits kSmall{.segments = 1 << 14};
  const Result<ReplaySummary> summary = replay_records(bytes, kSmall);
  // Framed, the same records give the same.
  std::vector<std::byte> file = recording_start();
  append_block(bytes, file);
  const Result<ReplaySummary> framed = replay_recording(file, kSmall);
  CHECK(framed.ok() == summary.ok());
  if (summary.ok()) CHECK(framed->records == summary->records);
  if (const auto content = recording_content(bytes); content.ok()) {
    CHECK(content->size() <= size);
  }
  return 0;
}
