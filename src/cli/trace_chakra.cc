#include <fmt/core.h>

#include <cstddef>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/commands.h"
#include "lab/bench/step/schedule.h"
#include "lab/files.h"
#include "lab/observe/timeline_chakra.h"
#include "lab/sweep/scenario_files.h"
#include "sim/workload/chakra_model.h"

namespace thalweg::cli {
namespace {

constexpr int kMaxRanks = 65'536;

struct TraceChakraArguments {
  std::vector<std::string> timelines;
  std::string model;
  std::string models;
  int ranks = 1;
  std::string bucket;
  std::string schedule = "ddp";
  std::string out;
};

// The files to write, and what to say of them.
struct ChakraFiles {
  std::vector<lab::OutputFile> files;
  std::string text;
};

std::string file_of(const std::string& folder, const std::string& name, int rank) {
  return fmt::format("{}/{}.{}.et", folder, name, rank);
}

Result<ChakraFiles> from_timelines(const TraceChakraArguments& arguments) {
  ChakraFiles made;
  for (const std::string& path : arguments.timelines) {
    THALWEG_TRY(std::string content, lab::read_file(path));
    THALWEG_TRY(const lab::ChakraTimeline timeline,
                lab::chakra_of_timeline({path, std::move(content)}));
    const std::string out = file_of(arguments.out, "timeline", timeline.rank);
    for (const lab::OutputFile& other : made.files) {
      if (other.path != out) continue;
      return Error(fmt::format("{}: another file is of rank {} too", path, timeline.rank));
    }
    made.files.push_back({out, to_chakra(timeline.trace)});
    made.text +=
        fmt::format("{}: rank {}, {} collectives, {} other calls left out, {} iterations\n", out,
                    timeline.rank, timeline.calls, timeline.left_out, timeline.iterations);
  }
  return made;
}

Result<ChakraFiles> from_model(const TraceChakraArguments& arguments) {
  if (arguments.ranks < 1 || arguments.ranks > kMaxRanks) {
    return Error(fmt::format("--ranks: {}; from 1 to {} are allowed", arguments.ranks, kMaxRanks));
  }
  const bool layerwise = arguments.schedule == "layerwise";
  if (!layerwise && arguments.schedule != "ddp") {
    return Error(fmt::format("--schedule: '{}': write ddp or layerwise", arguments.schedule));
  }
  lab::step::ScheduleOptions options;
  if (!arguments.bucket.empty()) {
    const Result<Bytes> bucket = parse_bytes(arguments.bucket);
    if (!bucket.ok()) return bucket.error().within("--bucket");
    if (*bucket <= Bytes()) return Error("--bucket: must be above 0, as in 25MiB");
    options.bucket = *bucket;
  }
  THALWEG_TRY(const sim::ModelTable model,
              lab::scenario_loaders(arguments.models).model(arguments.model));
  THALWEG_TRY(const lab::step::Schedule schedule, lab::step::schedule_of(model, options));
  sim::ModelTable buckets = lab::step::table_of(schedule);
  buckets.name = model.name;
  buckets.batch = model.batch;
  const std::string content = to_chakra(sim::chakra_of(
      buckets, layerwise ? sim::ChakraWait::kOwnLayer : sim::ChakraWait::kAllLayers));
  ChakraFiles made;
  for (int rank = 0; rank < arguments.ranks; ++rank) {
    made.files.push_back({file_of(arguments.out, model.name, rank), content});
  }
  std::string names = made.files.front().path;
  if (arguments.ranks > 1) names += " to " + made.files.back().path;
  made.text =
      fmt::format("{}: {} buckets, {} of gradients, forward {:.3f} ms, backward {:.3f} ms\n", names,
                  schedule.buckets.size(), to_string(schedule.size()), schedule.forward().ms(),
                  schedule.backward().ms());
  return made;
}

Result<int> run_trace_chakra(const TraceChakraArguments& arguments) {
  if (arguments.model.empty() == arguments.timelines.empty()) {
    return Error("give either --model or the timelines of ranks");
  }
  THALWEG_TRY(const ChakraFiles made,
              arguments.model.empty() ? from_timelines(arguments) : from_model(arguments));
  std::error_code failure;
  std::filesystem::create_directories(arguments.out, failure);
  if (failure) return Error(fmt::format("--out: {}: {}", arguments.out, failure.message()));
  THALWEG_TRY_STATUS(lab::write_files(made.files));
  std::cout << made.text;
  return 0;
}

}  // namespace

void add_trace_chakra(CLI::App& trace) {
  auto arguments = std::make_shared<TraceChakraArguments>();
  CLI::App& app = *trace.add_subcommand("chakra",
                                        "write Chakra execution traces (MLCommons), a file for "
                                        "each rank: of a model's training step, "
                                        "or of a job's timelines");
  app.add_option("timelines", arguments->timelines, "timelines of ranks (THALWEG_TIMELINE)");
  app.add_option("--model", arguments->model, "layer table: a name in models/, or a file");
  app.add_option("--models", arguments->models, "folder of layer tables");
  app.add_option("--ranks", arguments->ranks, "with --model: the number of ranks, all alike")
      ->capture_default_str();
  app.add_option("--bucket", arguments->bucket,
                 "with --model: bytes of gradients that are sent together (25MiB, the first bucket "
                 "1MiB, as in DDP)");
  app.add_option("--schedule", arguments->schedule,
                 "with --model: ddp: a step waits for all gradients; layerwise: each layer for its "
                 "own bucket")
      ->capture_default_str();
  app.add_option("--out", arguments->out, "folder for the traces")->required();
  add_examples(app, {"thalweg trace chakra --model resnet50 --ranks 4 --out traces",
                     "thalweg trace chakra run.0.json run.1.json --out traces"});
  on_run(app, [arguments] { return run_trace_chakra(*arguments); });
}

}  // namespace thalweg::cli
