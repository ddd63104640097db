#include "cli/sim_pictures.h"

#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <sstream>

#include "cli/figure.h"
#include "cli/sim_plot.h"
#include "trace/writer.h"

namespace thalweg {
namespace {

// Nothing if the ending means no format.
std::unique_ptr<EventWriter> writer_for(const std::string& path, std::ostream& out,
                                        const std::vector<std::string>& host_names) {
  const std::string ending = std::filesystem::path(path).extension().string();
  if (ending == ".json") return std::make_unique<ChromeTraceWriter>(out, host_names);
  if (ending == ".jsonl") return std::make_unique<JsonLinesWriter>(out);
  if (ending == ".txt") return std::make_unique<TextWriter>(out);
  return nullptr;
}

OutputFile trace_of(const std::string& path, RunRecorder& recorder) {
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

void add_picture_options(CLI::App& app, PictureArguments& arguments) {
  app.add_option("--trace", arguments.trace,
                 "write a timeline: .json for ui.perfetto.dev and Chrome, .jsonl or .txt");
  app.add_option("--plot", arguments.plot, "draw the run: .svg, .png or .pdf");
}

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

std::unique_ptr<RunRecorder> recorder_for(const PictureArguments& arguments,
                                          const Scenario& scenario) {
  if (!arguments.any()) return nullptr;
  return std::make_unique<RunRecorder>(scenario,
                                       RecorderOptions{.timeline = !arguments.trace.empty()});
}

Result<std::vector<OutputFile>> make_pictures(const PictureArguments& arguments,
                                              const Scenario& scenario,
                                              const ScenarioResult& result, RunRecorder& recorder) {
  std::vector<OutputFile> files;
  if (!arguments.plot.empty()) {
    THALWEG_TRY(files, render_figures({{figure_of(scenario, result, recorder), arguments.plot}}));
  }
  if (!arguments.trace.empty()) files.push_back(trace_of(arguments.trace, recorder));
  return files;
}

}  // namespace thalweg
