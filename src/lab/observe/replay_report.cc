#include "lab/observe/replay_report.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "lab/console.h"

namespace thalweg::lab {

nlohmann::ordered_json replay_json(const proto::ReplaySummary& summary) {
  nlohmann::ordered_json json{{"same", !summary.difference},
                              {"complete", summary.complete},
                              {"records", summary.records},
                              {"duration_ms", summary.duration.ms()},
                              {"sends", summary.sends},
                              {"receives", summary.receives},
                              {"succeeded", summary.succeeded},
                              {"failed", summary.failed},
                              {"packets_sent", summary.counters.segments_sent},
                              {"packets_retransmitted", summary.counters.segments_retransmitted},
                              {"packets_received", summary.packets_received},
                              {"packets_placed", summary.counters.segments_placed},
                              {"messages_sent", summary.messages_sent},
                              {"messages_received", summary.messages_received}};
  if (summary.difference) {
    const proto::ReplayDifference& difference = *summary.difference;
    json["difference"] = {{"record", difference.record},
                          {"verb", difference.verb},
                          {"at_ms", difference.at.ms()},
                          {"recorded", difference.recorded},
                          {"replayed", difference.replayed}};
  }
  return json;
}

std::string replay_text(const proto::ReplaySummary& summary) {
  if (summary.difference) {
    const proto::ReplayDifference& difference = *summary.difference;
    return fmt::format(
        "different: record {} ({}), {} after the first\n  recorded {}\n  replayed {}\n",
        difference.record, difference.verb, to_human(difference.at), difference.recorded,
        difference.replayed);
  }
  std::string text =
      fmt::format("same: {} records over {}{}\n", summary.records, to_human(summary.duration),
                  summary.complete ? "" : ", without an end: it was cut off");
  const proto::DlcpCounters& counters = summary.counters;
  text += format_table({
      {"", "sent", "received"},
      {"transfers", std::to_string(summary.sends), std::to_string(summary.receives)},
      {"packets", std::to_string(counters.segments_sent), std::to_string(summary.packets_received)},
      {"again", std::to_string(counters.segments_retransmitted), ""},
      {"placed", "", std::to_string(counters.segments_placed)},
      {"messages", std::to_string(summary.messages_sent),
       std::to_string(summary.messages_received)},
  });
  text += fmt::format("{} transfers succeeded, {} failed\n", summary.succeeded, summary.failed);
  return text;
}

}  // namespace thalweg::lab
