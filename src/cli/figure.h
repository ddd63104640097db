// Figures as plain data, drawn by python/thalweg/figure.py, which says what each part looks like.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <thalweg/result.h>

#include "cli/command.h"

namespace thalweg {

enum class PanelKind : std::uint8_t {
  kLines,
  kSteps,  // a value holds until the next x
  kPoints,
  kArea,
  kStack,  // steps laid on one another; all series have the same x
  kBars,   // groups of bars, one group a category
};

struct FigureSeries {
  std::string name;            // empty: not in the legend
  std::vector<double> x = {};  // empty for bars
  std::vector<double> y = {};  // one for each x, or for each category; not finite: a gap
  bool reference = false;      // what ours is held against: dashed, hatched as bars
  int color = -1;              // series of one number share a colour; -1: one of its own
};

// Something that happened: a vertical line.
struct FigureMark {
  double x = 0;
  std::string label = {};
};

// A limit or a target: a horizontal line.
struct FigureReference {
  double y = 0;
  std::string label;
};

struct FigurePanel {
  PanelKind kind = PanelKind::kLines;
  std::string title = {};
  std::string x_label = {};
  std::string y_label = {};
  bool log_x = false;
  bool log_y = false;                        // logarithmic axes take values above 0 only
  std::vector<std::string> categories = {};  // of bars
  std::vector<FigureSeries> series = {};
  std::vector<FigureMark> marks = {};
  std::vector<FigureReference> references = {};
  // Where equal in both, drawn as wide as the values need.
  std::pair<double, double> x_range = {};
  std::pair<double, double> y_range = {};
  std::vector<double> x_ticks = {};  // empty: chosen
};

struct Figure {
  std::string title;
  int columns = 0;  // of panels; 0: chosen
  std::vector<FigurePanel> panels = {};

  [[nodiscard]] std::string to_json() const;
};

struct FigureFile {
  Figure figure;
  std::string path;  // its ending says the format
};

// Whether figures could be drawn to these paths: .svg, .png or .pdf, with matplotlib present. For
// asking before long work.
Status check_figure_paths(const std::vector<std::string>& paths);

// Draws all of them in one process; the images, for write_files().
Result<std::vector<OutputFile>> render_figures(const std::vector<FigureFile>& files);
// Draws and writes: every file, or none.
Status draw_figures(const std::vector<FigureFile>& files);

}  // namespace thalweg
