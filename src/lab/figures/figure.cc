#include "lab/figures/figure.h"

#include <fmt/core.h>

#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "lab/files.h"
#include "lab/python_script.h"

namespace thalweg::lab {
namespace {

using Json = nlohmann::ordered_json;

// Matplotlib may look through all fonts of a machine when it is used there for the first time.
constexpr std::chrono::milliseconds kDrawingLimit{300'000};
constexpr std::chrono::milliseconds kCheckLimit{60'000};

const char* name_of(PanelKind kind) {
  switch (kind) {
    case PanelKind::kLines:
      return "lines";
    case PanelKind::kSteps:
      return "steps";
    case PanelKind::kPoints:
      return "points";
    case PanelKind::kArea:
      return "area";
    case PanelKind::kStack:
      return "stack";
    case PanelKind::kBars:
      return "bars";
  }
  return "";
}

// Numbers that are not finite become null.
Json json_of(const FigureSeries& series, PanelKind kind) {
  Json json = {{"name", series.name}, {"y", series.y}};
  if (kind != PanelKind::kBars) json["x"] = series.x;
  if (series.reference) json["reference"] = true;
  if (series.color >= 0) json["color"] = series.color;
  return json;
}

Json json_of(const FigurePanel& panel) {
  Json json = {{"kind", name_of(panel.kind)},
               {"title", panel.title},
               {"x_label", panel.x_label},
               {"y_label", panel.y_label},
               {"series", Json::array()}};
  for (const FigureSeries& series : panel.series) {
    json["series"].push_back(json_of(series, panel.kind));
  }
  if (panel.kind == PanelKind::kBars) json["categories"] = panel.categories;
  if (panel.log_x) json["log_x"] = true;
  if (panel.log_y) json["log_y"] = true;
  for (const FigureMark& mark : panel.marks) {
    json["marks"].push_back({{"x", mark.x}, {"label", mark.label}});
  }
  for (const FigureReference& line : panel.references) {
    json["references"].push_back({{"y", line.y}, {"label", line.label}});
  }
  if (panel.x_range.first != panel.x_range.second) json["x_range"] = panel.x_range;
  if (panel.y_range.first != panel.y_range.second) json["y_range"] = panel.y_range;
  if (!panel.x_ticks.empty()) json["x_ticks"] = panel.x_ticks;
  return json;
}

Json json_of(const Figure& figure) {
  Json json = {{"title", figure.title}, {"panels", Json::array()}};
  if (figure.columns > 0) json["columns"] = figure.columns;
  for (const FigurePanel& panel : figure.panels) json["panels"].push_back(json_of(panel));
  return json;
}

// The JSON as text. Names from files may hold bytes that are not UTF-8; they are replaced.
std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<std::string> run_figure_script(const std::string& option, std::string input,
                                      std::chrono::milliseconds limit) {
  return run_python_script({.name = "figures/draw.py",
                            .options = {option},
                            .input = std::move(input),
                            .limit = limit,
                            .doing = "cannot draw"});
}

// Removes one image from the front of `stream`, where it follows a line with its size.
Result<std::string> take_image(std::string_view& stream) {
  std::size_t size = 0;
  const char* end = stream.data() + stream.size();
  const auto [after, error] = std::from_chars(stream.data(), stream.data() + stream.size(), size);
  if (error != std::errc() || after == end || *after != '\n' ||
      size > static_cast<std::size_t>(end - after - 1)) {
    return Error("cannot draw: draw.py answered something else than images");
  }
  std::string image(after + 1, size);
  stream.remove_prefix(static_cast<std::size_t>(after + 1 - stream.data()) + size);
  return image;
}

}  // namespace

std::string Figure::to_json() const { return dump(json_of(*this)); }

Status check_figure_paths(const std::vector<std::string>& paths) {
  if (paths.empty()) return ok_status();
  for (const std::string& path : paths) {
    std::string ending = std::filesystem::path(path).extension().string();
    for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (ending != ".svg" && ending != ".png" && ending != ".pdf") {
      return Error(fmt::format("{}: a figure is written as .svg, .png or .pdf", path));
    }
  }
  THALWEG_TRY([[maybe_unused]] const std::string nothing,
              run_figure_script("--check", "", kCheckLimit));
  return ok_status();
}

Result<std::vector<OutputFile>> render_figures(const std::vector<FigureFile>& files) {
  std::vector<OutputFile> images;
  if (files.empty()) return images;
  Json request = {{"figures", Json::array()}};
  for (const FigureFile& file : files) {
    request["figures"].push_back({{"path", file.path}, {"figure", json_of(file.figure)}});
  }
  THALWEG_TRY(const std::string output,
              run_figure_script("--to-stdout", dump(request), kDrawingLimit));
  std::string_view rest = output;
  for (const FigureFile& file : files) {
    THALWEG_TRY(std::string image, take_image(rest));
    images.push_back({.path = file.path, .content = std::move(image)});
  }
  return images;
}

Status draw_figures(const std::vector<FigureFile>& files) {
  THALWEG_TRY(const std::vector<OutputFile> images, render_figures(files));
  return write_files(images);
}

}  // namespace thalweg::lab
