// Figures as plain data. python/thalweg/lab/figures/draw.py draws them, and says what each part
// looks like.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <thalweg/result.h>

#include "lab/files.h"

namespace thalweg::lab {

enum class PanelKind : std::uint8_t {
  kLines,
  kSteps,  // each value holds until the next x
  kPoints,
  kArea,
  kStack,  // steps on top of one another; all series have the same x
  kBars,   // groups of bars, one group per category
};

struct FigureSeries {
  std::string name;            // empty: not in the legend
  std::vector<double> x = {};  // empty for bars
  std::vector<double> y = {};  // one per x or per category; a value that is not finite is a gap
  bool reference = false;      // to compare with: drawn dashed, or hatched if it is bars
  int color = -1;              // series with the same number share a colour; -1: its own colour
};

// An event, drawn as a vertical line.
struct FigureMark {
  double x = 0;
  std::string label = {};
};

// A limit or a target, drawn as a horizontal line.
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
  bool log_y = false;                        // logarithmic axes take only values above 0
  std::vector<std::string> categories = {};  // of bars
  std::vector<FigureSeries> series = {};
  std::vector<FigureMark> marks = {};
  std::vector<FigureReference> references = {};
  // The first and last value of the axis. If both are equal, the values decide.
  std::pair<double, double> x_range = {};
  std::pair<double, double> y_range = {};
  std::vector<double> x_ticks = {};  // empty: chosen when it is drawn
};

struct Figure {
  std::string title;
  int columns = 0;  // of panels; 0: chosen when it is drawn
  std::vector<FigurePanel> panels = {};

  [[nodiscard]] std::string to_json() const;
};

struct FigureFile {
  Figure figure;
  std::string path;  // .svg, .png or .pdf
};

// Checks that figures can be drawn to these paths: they end in .svg, .png or .pdf, and matplotlib
// is there. To be called before long work.
Status check_figure_paths(const std::vector<std::string>& paths);

// Draws all figures in one process and returns the images, for write_files().
Result<std::vector<OutputFile>> render_figures(const std::vector<FigureFile>& files);
// Draws the figures and writes all files, or none if one fails.
Status draw_figures(const std::vector<FigureFile>& files);

}  // namespace thalweg::lab
