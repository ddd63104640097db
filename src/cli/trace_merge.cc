#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/commands.h"
#include "lab/files.h"
#include "lab/observe/timeline_merge.h"

namespace thalweg::cli {
namespace {

struct TraceMergeArguments {
  std::vector<std::string> files;
  std::string out;
  bool json = false;
};

Result<int> run_trace_merge(const TraceMergeArguments& arguments) {
  std::vector<lab::TimelineFile> files;
  for (const std::string& path : arguments.files) {
    THALWEG_TRY(std::string content, lab::read_file(path));
    files.push_back({path, std::move(content)});
  }
  THALWEG_TRY(lab::MergedTimeline merged, lab::merge_timelines(files));
  THALWEG_TRY_STATUS(lab::write_files({{arguments.out, std::move(merged.json)}}));
  std::cout << (arguments.json ? lab::merge_json(merged).dump(2) + "\n" : lab::merge_text(merged));
  return 0;
}

}  // namespace

void add_trace_merge(CLI::App& trace) {
  auto arguments = std::make_shared<TraceMergeArguments>();
  CLI::App& app = *trace.add_subcommand(
      "merge", "put the timelines of several ranks (THALWEG_TIMELINE) on one time axis");
  app.add_option("files", arguments->files, "the timeline of each rank")->required();
  app.add_option("--out", arguments->out, "file for ui.perfetto.dev")->required();
  app.add_flag("--json", arguments->json, "print how clocks were aligned as a JSON object");
  add_examples(app, {"thalweg trace merge run.0.json run.1.json --out run.json"});
  on_run(app, [arguments] { return run_trace_merge(*arguments); });
}

}  // namespace thalweg::cli
