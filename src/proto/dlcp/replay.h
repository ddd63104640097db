// Runs a recording again: tells a fresh endpoint everything that the recorded one was told, at the
// same times, and compares every answer byte for byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <thalweg/result.h>

#include "base/units.h"
#include "proto/dlcp/endpoint.h"

namespace thalweg {

// What a file may make the reader do.
struct ReplayLimits {
  std::int64_t segments = std::int64_t{1} << 36;  // of all transfers together
};

// The first record whose bytes are not what the fresh endpoint makes of it.
struct ReplayDifference {
  std::uint64_t record = 0;  // counted from 1; 0: the options
  std::string verb;
  Duration at;  // since the first record
  // From the record's first byte, in hexadecimal, a few bytes beyond the difference.
  std::string recorded;
  std::string replayed;
};

struct ReplaySummary {
  std::uint64_t records = 0;
  std::uint64_t sends = 0;     // transfers started
  std::uint64_t receives = 0;  // transfers started
  std::uint64_t succeeded = 0;
  std::uint64_t failed = 0;
  std::uint64_t packets_received = 0;  // whether of use or not
  std::uint64_t messages_received = 0;
  std::uint64_t messages_sent = 0;
  DlcpCounters counters;
  Duration duration;      // from the first record to the last
  bool complete = false;  // the recording has its end
  std::optional<ReplayDifference> difference;
};

// Fails on what is no recording, is damaged, or says what no driver may say. A recording that was
// cut off after a whole block is replayed as far as it goes.
[[nodiscard]] Result<ReplaySummary> replay_recording(std::span<const std::byte> file,
                                                     const ReplayLimits& limits = {});
// The same of the records themselves, out of their blocks.
[[nodiscard]] Result<ReplaySummary> replay_records(std::span<const std::byte> content,
                                                   const ReplayLimits& limits = {});

}  // namespace thalweg
