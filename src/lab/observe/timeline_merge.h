// Puts the timelines of several ranks (net/job/timeline.h) on one time axis.
//
// Each file has its rank's own clock. Ranks of one boot of one machine share CLOCK_MONOTONIC, so
// their offsets are known. For any other rank the collectives that both took part in bound the
// offset: where every rank needs every other rank's data, no rank's call is over before the other
// has made its call. The offset is the middle of what all of these calls allow, and half of the
// width is how wrong it may be. Without such calls the machines' clocks of the day decide.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>

namespace thalweg::lab {

struct AlignedRank {
  std::string path;
  int rank = 0;
  std::string host;
  std::size_t calls = 0;
  double offset_us = 0;  // is added to its times, to give those of the first file
  enum class By { kFirst, kMonotonicClock, kCalls, kRealtimeClock } by = By::kFirst;
  std::optional<double> error_us = 0;  // at most; none: not known
};

struct MergedTimeline {
  std::string json;  // Chrome's trace format
  std::vector<AlignedRank> ranks;
};

struct TimelineFile {
  std::string path;
  std::string content;
};

// Requires at least one file. Errors name the file.
[[nodiscard]] Result<MergedTimeline> merge_timelines(const std::vector<TimelineFile>& files);

[[nodiscard]] std::string merge_text(const MergedTimeline& merged);
[[nodiscard]] nlohmann::ordered_json merge_json(const MergedTimeline& merged);

}  // namespace thalweg::lab
