#include "lab/observe/timeline_merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace thalweg::lab {
namespace {

using ParsedJson = nlohmann::json;
using CallId = std::pair<std::string, std::int64_t>;  // communicator, number

struct Interval {
  double called = 0;
  double ended = 0;
};

struct Timeline {
  AlignedRank rank;
  std::string boot;
  double monotonic_us = 0;
  double realtime_us = 0;
  ParsedJson events;
  std::map<CallId, Interval> calls;  // those that tell of the others' clocks
};

// In these no rank's call is over before every other rank has made its call.
constexpr std::array<std::string_view, 5> kAllNeedAll{"allreduce", "barrier", "all_gather",
                                                      "reduce_scatter", "all_to_all"};

const char* name_of(AlignedRank::By by) {
  switch (by) {
    case AlignedRank::By::kFirst:
      return "first";
    case AlignedRank::By::kMonotonicClock:
      return "the clock of their machine";
    case AlignedRank::By::kCalls:
      return "calls that both made";
    case AlignedRank::By::kRealtimeClock:
      return "the clocks of the day";
  }
  return "?";
}

Error not_ours(const std::string& path) {
  return Error(
      fmt::format("{}: this is no timeline of Thalweg (THALWEG_TIMELINE writes them)", path));
}

void note_call(const ParsedJson& event, Timeline& timeline) {
  const ParsedJson arguments = event.value("args", ParsedJson::object());
  const std::string call = arguments.value("call", "");
  if (call.empty()) return;
  ++timeline.rank.calls;
  const bool tells = std::ranges::find(kAllNeedAll, call) != kAllNeedAll.end() &&
                     arguments.value("outcome", "") == "ok" && arguments.contains("number");
  if (!tells) return;
  const auto start = event.at("ts").get<double>();
  timeline.calls[{arguments.value("group", ""), arguments.at("number").get<std::int64_t>()}] = {
      start, start + event.at("dur").get<double>()};
}

Result<Timeline> timeline_of(const TimelineFile& file) {
  const ParsedJson document = ParsedJson::parse(file.content, nullptr, false);
  if (!document.is_object() || !document.contains("otherData") ||
      !document.contains("traceEvents")) {
    return not_ours(file.path);
  }
  Timeline timeline;
  // The library throws where a member has another type than is asked for.
  try {
    const ParsedJson& notes = document.at("otherData");
    timeline.rank.path = file.path;
    timeline.rank.rank = notes.at("rank").get<int>();
    timeline.rank.host = notes.at("host").get<std::string>();
    timeline.boot = notes.at("boot").get<std::string>();
    timeline.monotonic_us = notes.at("monotonic_us").get<double>();
    timeline.realtime_us = notes.at("realtime_us").get<double>();
    timeline.events = document.at("traceEvents");
    for (const ParsedJson& event : timeline.events) note_call(event, timeline);
  } catch (const ParsedJson::exception&) {
    return not_ours(file.path);
  }
  return timeline;
}

// What the calls allow for the offset of `other` to `first`: from low to high.
std::optional<std::pair<double, double>> allowed_offsets(const Timeline& first,
                                                         const Timeline& other) {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool any = false;
  for (const auto& [id, theirs] : other.calls) {
    const auto ours = first.calls.find(id);
    if (ours == first.calls.end()) continue;
    any = true;
    low = std::max(low, ours->second.called - theirs.ended);
    high = std::min(high, ours->second.ended - theirs.called);
  }
  if (!any) return std::nullopt;
  // A clock that drifts during a long run may leave nothing: then both bounds are about as wrong.
  return std::minmax(low, high);
}

void align(const Timeline& first, Timeline& other) {
  AlignedRank& rank = other.rank;
  if (!first.boot.empty() && first.boot == other.boot) {
    rank.by = AlignedRank::By::kMonotonicClock;
    rank.offset_us = other.monotonic_us - first.monotonic_us;
    rank.error_us = 1;  // clocks are noted in microseconds
    return;
  }
  const auto allowed = allowed_offsets(first, other);
  if (!allowed) {
    rank.by = AlignedRank::By::kRealtimeClock;
    rank.offset_us = other.realtime_us - first.realtime_us;
    rank.error_us.reset();
    return;
  }
  rank.by = AlignedRank::By::kCalls;
  rank.offset_us = (allowed->first + allowed->second) / 2;
  rank.error_us = (allowed->second - allowed->first) / 2;
}

}  // namespace

Result<MergedTimeline> merge_timelines(const std::vector<TimelineFile>& files) {
  std::vector<Timeline> timelines;
  std::map<int, std::string> seen;
  for (const TimelineFile& file : files) {
    THALWEG_TRY(Timeline timeline, timeline_of(file));
    const auto [other, is_new] = seen.emplace(timeline.rank.rank, file.path);
    if (!is_new) {
      return Error(fmt::format("{} and {} are both of rank {}; one file a rank is allowed",
                               other->second, file.path, timeline.rank.rank));
    }
    timelines.push_back(std::move(timeline));
  }
  std::ranges::sort(timelines, {}, [](const Timeline& each) { return each.rank.rank; });

  MergedTimeline merged;
  ParsedJson events = ParsedJson::array();
  for (Timeline& timeline : timelines) {
    if (&timeline != &timelines.front()) align(timelines.front(), timeline);
    for (ParsedJson& event : timeline.events) {
      if (event.contains("ts")) event["ts"] = event["ts"].get<double>() + timeline.rank.offset_us;
      events.push_back(std::move(event));
    }
    merged.ranks.push_back(timeline.rank);
  }
  merged.json =
      ParsedJson{{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}}.dump() + "\n";
  return merged;
}

nlohmann::ordered_json merge_json(const MergedTimeline& merged) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const AlignedRank& rank : merged.ranks) {
    ranks.push_back({{"rank", rank.rank},
                     {"file", rank.path},
                     {"host", rank.host},
                     {"calls", rank.calls},
                     {"offset_us", rank.offset_us},
                     {"by", name_of(rank.by)},
                     {"error_us", rank.error_us ? nlohmann::ordered_json(*rank.error_us)
                                                : nlohmann::ordered_json(nullptr)}});
  }
  return {{"ranks", std::move(ranks)}};
}

std::string merge_text(const MergedTimeline& merged) {
  std::string text;
  for (const AlignedRank& rank : merged.ranks) {
    text += fmt::format("rank {} on {}: {} calls", rank.rank, rank.host, rank.calls);
    if (rank.by != AlignedRank::By::kFirst) {
      text += fmt::format(", moved by {:.0f} µs by {}, {}", rank.offset_us, name_of(rank.by),
                          rank.error_us ? fmt::format("right to ± {:.0f} µs", *rank.error_us)
                                        : std::string("how right is not known"));
    }
    text += '\n';
  }
  return text;
}

}  // namespace thalweg::lab
