#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "cli/command.h"
#include "cli/commands.h"
#include "lab/files.h"
#include "lab/observe/replay_report.h"
#include "proto/dlcp/record/replay.h"

namespace thalweg::cli {
namespace {

struct TraceReplayArguments {
  std::string file;
  bool json = false;
};

Result<int> run_trace_replay(const TraceReplayArguments& arguments) {
  THALWEG_TRY(const std::string file, lab::read_file(arguments.file));
  Result<proto::ReplaySummary> summary = proto::replay_recording(std::as_bytes(std::span(file)));
  if (!summary.ok()) return summary.error().within(arguments.file);
  std::cout << (arguments.json ? lab::replay_json(*summary).dump(2) + "\n"
                               : lab::replay_text(*summary));
  return summary->difference ? kExitNo : 0;
}

}  // namespace

void add_trace_replay(CLI::App& trace) {
  auto arguments = std::make_shared<TraceReplayArguments>();
  CLI::App& app = *trace.add_subcommand(
      "replay",
      "run a recorded connection again, without sockets, and compare every answer of the protocol; "
      "exit code 1 if one differs, 2 if the file cannot be read");
  app.add_option("file", arguments->file, "a recording (docs/recording.md)")->required();
  app.add_flag("--json", arguments->json, "print a JSON object");
  add_examples(app, {"thalweg trace replay sender-0.dlcp"});
  on_run(app, [arguments] { return run_trace_replay(*arguments); });
}

}  // namespace thalweg::cli
