// Recordings: the reader refuses any file or replays it, within its limits. Since damaged blocks
// are refused, the fuzzer's bytes are also replayed as records without blocks.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "proto/dlcp/record/record_codec.h"
#include "proto/dlcp/record/replay.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace thalweg;
  using namespace thalweg::proto;
  const auto bytes = std::as_bytes(std::span(data, size));
  constexpr ReplayLimits kSmall{.segments = 1 << 14};
  const Result<ReplaySummary> summary = replay_records(bytes, kSmall);
  // In a block, the same records give the same result.
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
