// Replays a recording: makes the recorded calls on a new endpoint, with the same times, and
// compares every answer byte for byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <thalweg/result.h>

#include "base/units.h"
#include "proto/dlcp/endpoint.h"

namespace thalweg::proto {

// Limits on the work that a file may cause.
struct ReplayLimits {
  std::int64_t segments = std::int64_t{1} << 36;  // of all transfers together
};

// The first record that differs from what the new endpoint writes.
struct ReplayDifference {
  std::uint64_t record = 0;  // counted from 1; 0: the options
  std::string verb;
  Duration at;  // since the first record
  // The record's bytes in hexadecimal, up to a few bytes beyond the difference.
  std::string recorded;
  std::string replayed;
};

struct ReplaySummary {
  std::uint64_t records = 0;
  std::uint64_t sends = 0;     // transfers started
  std::uint64_t receives = 0;  // transfers started
  std::uint64_t succeeded = 0;
  std::uint64_t failed = 0;
  std::uint64_t packets_received = 0;  // dropped ones included
  std::uint64_t messages_received = 0;
  std::uint64_t messages_sent = 0;
  DlcpCounters counters;
  Duration duration;      // from the first record to the last
  bool complete = false;  // the recording has its end record
  std::optional<ReplayDifference> difference;
};

// Fails if the file is not a recording, is damaged, or holds a call that no driver may make. A
// recording that was cut off after a whole block is replayed as far as it goes.
[[nodiscard]] Result<ReplaySummary> replay_recording(std::span<const std::byte> file,
                                                     const ReplayLimits& limits = {});
// The same for the bare records, without the blocks of the file.
[[nodiscard]] Result<ReplaySummary> replay_records(std::span<const std::byte> content,
                                                   const ReplayLimits& limits = {});

}  // namespace thalweg::proto
