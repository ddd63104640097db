#include "cli/trace_replay.h"

#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "cli/command.h"
#include "proto/dlcp/replay.h"

namespace thalweg {
namespace {

struct Arguments {
  std::string file;
  bool json = false;
};

nlohmann::ordered_json to_json(const ReplaySummary& summary) {
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
    const ReplayDifference& difference = *summary.difference;
    json["difference"] = {{"record", difference.record},
                          {"verb", difference.verb},
                          {"at_ms", difference.at.ms()},
                          {"recorded", difference.recorded},
                          {"replayed", difference.replayed}};
  }
  return json;
}

void print(const ReplaySummary& summary) {
  if (summary.difference) {
    const ReplayDifference& difference = *summary.difference;
    std::cout << fmt::format(
        "different: record {} ({}), {} after the first\n  recorded {}\n  replayed {}\n",
        difference.record, difference.verb, to_human(difference.at), difference.recorded,
        difference.replayed);
    return;
  }
  std::cout << fmt::format("same: {} records over {}{}\n", summary.records,
                           to_human(summary.duration),
                           summary.complete ? "" : ", without an end: it was cut off");
  const DlcpCounters& counters = summary.counters;
  std::cout << format_table({
      {"", "sent", "received"},
      {"transfers", std::to_string(summary.sends), std::to_string(summary.receives)},
      {"packets", std::to_string(counters.segments_sent), std::to_string(summary.packets_received)},
      {"again", std::to_string(counters.segments_retransmitted), ""},
      {"placed", "", std::to_string(counters.segments_placed)},
      {"messages", std::to_string(summary.messages_sent),
       std::to_string(summary.messages_received)},
  });
  std::cout << fmt::format("{} transfers succeeded, {} failed\n", summary.succeeded,
                           summary.failed);
}

Result<int> run(const Arguments& arguments) {
  THALWEG_TRY(const std::string file, read_file(arguments.file));
  Result<ReplaySummary> summary = replay_recording(std::as_bytes(std::span(file)));
  if (!summary.ok()) return summary.error().within(arguments.file);
  if (arguments.json) {
    std::cout << to_json(*summary).dump(2) << '\n';
  } else {
    print(*summary);
  }
  return summary->difference ? kExitNo : 0;
}

}  // namespace

void add_trace_replay(CLI::App& trace) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App& app = *trace.add_subcommand(
      "replay",
      "run a recorded connection again, without sockets, and compare every answer of the protocol; "
      "exit code 1 if one differs, 2 if the file cannot be read");
  app.add_option("file", arguments->file, "a recording (docs/recording.md)")->required();
  app.add_flag("--json", arguments->json, "print a JSON object");
  on_run(app, [arguments] { return run(*arguments); });
}

}  // namespace thalweg
