#include "lab/figures/sim_pictures.h"

#include <fmt/core.h>

#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <sstream>

#include "lab/figures/figure.h"
#include "lab/figures/sim_plot.h"
#include "lab/files.h"
#include "trace/writer.h"

namespace thalweg::lab {
namespace {

// The writer of the format that the ending of `path` means; null if there is none.
std::unique_ptr<trace::EventWriter> writer_for(const std::string& path, std::ostream& out,
                                               const std::vector<std::string>& host_names) {
  const std::string ending = std::filesystem::path(path).extension().string();
  if (ending == ".json") return std::make_unique<trace::ChromeTraceWriter>(out, host_names);
  if (ending == ".jsonl") return std::make_unique<trace::JsonLinesWriter>(out);
  if (ending == ".txt") return std::make_unique<trace::TextWriter>(out);
  return nullptr;
}

OutputFile trace_of(const std::string& path, sim::RunRecorder& recorder) {
  std::ostringstream out;
  const auto writer = writer_for(path, out, recorder.host_names());
  const std::size_t left_out = recorder.write(*writer);
  if (left_out > 0) {
    std::cerr << fmt::format("thalweg: {}: {} events beyond the limit are left out\n", path,
                             left_out);
  }
  return {.path = path, .content = std::move(out).str()};
}

}  // namespace

Status check_pictures(const PictureArguments& arguments) {
  std::ostringstream nothing;
  if (!arguments.trace.empty() && writer_for(arguments.trace, nothing, {}) == nullptr) {
    return Error(
        fmt::format("--trace {}: a timeline is written as .json, .jsonl or .txt", arguments.trace));
  }
  if (arguments.plot.empty()) return ok_status();
  const Status plot = check_figure_paths({arguments.plot});
  return plot.ok() ? ok_status() : Status(plot.error().within("--plot"));
}

std::unique_ptr<sim::RunRecorder> recorder_for(const PictureArguments& arguments,
                                               const sim::Scenario& scenario) {
  if (!arguments.any()) return nullptr;
  return std::make_unique<sim::RunRecorder>(
      scenario, sim::RecorderOptions{.timeline = !arguments.trace.empty()});
}

Result<std::vector<OutputFile>> make_pictures(const PictureArguments& arguments,
                                              const sim::Scenario& scenario,
                                              const sim::ScenarioResult& result,
                                              sim::RunRecorder& recorder) {
  std::vector<OutputFile> files;
  if (!arguments.plot.empty()) {
    THALWEG_TRY(files, render_figures({{figure_of(scenario, result, recorder), arguments.plot}}));
  }
  if (!arguments.trace.empty()) files.push_back(trace_of(arguments.trace, recorder));
  return files;
}

}  // namespace thalweg::lab
