#include "lab/figures/experiment_figure.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "base/number.h"
#include "lab/console.h"

namespace thalweg::lab {
namespace {

// The number that a label stands for: 8 for "8", 0.0625 for "1/16".
std::optional<double> number_of(std::string_view label) {
  const std::size_t slash = label.find('/');
  if (slash == std::string_view::npos) return number_in<double>(label);
  const auto above = number_in<double>(label.substr(0, slash));
  const auto below = number_in<double>(label.substr(slash + 1));
  if (!above || !below || *below == 0) return std::nullopt;
  return *above / *below;
}

const sim::Axis& axis_called(const sim::ExperimentResult& result, const std::string& name) {
  return *std::ranges::find(result.axes, name, &sim::Axis::name);
}

// Whether every label along x is a number. Then lines are drawn, otherwise bars.
bool is_numeric(const sim::Axis& axis) {
  return axis.values.size() > 1 &&
         std::ranges::all_of(axis.values, [](const sim::Axis::Value& value) {
           return number_of(value.label).has_value();
         });
}

FigureSeries series_of(const sim::PlotLine& line, const sim::Axis& axis, bool numeric) {
  FigureSeries series{.name = line.name};
  if (numeric) {
    for (std::size_t i = 0; i < line.values.size(); ++i) {
      series.x.push_back(*number_of(line.labels[i]));
      series.y.push_back(line.values[i]);
    }
    return series;
  }
  // A category that was not run is a gap.
  for (const sim::Axis::Value& value : axis.values) {
    const auto found = std::ranges::find(line.labels, value.label);
    series.y.push_back(found == line.labels.end()
                           ? std::numeric_limits<double>::quiet_NaN()
                           : line.values[static_cast<std::size_t>(found - line.labels.begin())]);
  }
  return series;
}

}  // namespace

Result<std::vector<FigureFile>> experiment_figures(const sim::Experiment& experiment,
                                                   const sim::ExperimentResult& result) {
  std::vector<FigureFile> files;
  for (const sim::ExperimentPlot& plot : experiment.plots) {
    THALWEG_TRY(const std::vector<sim::PlotLine> lines, sim::lines_of(plot, result));
    if (lines.empty()) continue;
    const sim::Axis& axis = axis_called(result, plot.x);
    const bool numeric = is_numeric(axis);
    Figure figure{.title = plot.title};
    std::vector<std::string> panels;
    for (const sim::PlotLine& line : lines) {
      auto place = std::ranges::find(panels, line.panel);
      if (place == panels.end()) {
        panels.push_back(line.panel);
        place = panels.end() - 1;
        FigurePanel panel{.kind = numeric ? PanelKind::kLines : PanelKind::kBars};
        panel.title = line.panel.empty() ? "" : fmt::format("{}: {}", plot.panels, line.panel);
        panel.x_label = plot.x;
        panel.y_label = plot.label;
        panel.log_x = plot.log_x && numeric;
        panel.log_y = plot.log_y;
        for (const sim::Axis::Value& value : axis.values) {
          if (numeric) {
            panel.x_ticks.push_back(*number_of(value.label));
          } else {
            panel.categories.push_back(value.label);
          }
        }
        figure.panels.push_back(std::move(panel));
      }
      figure.panels[static_cast<std::size_t>(place - panels.begin())].series.push_back(
          series_of(line, axis, numeric));
    }
    if (!plot.paper.empty()) {
      sim::PlotLine paper{.panel = {}, .name = "paper", .labels = {}, .values = {}};
      for (const auto& [label, value] : plot.paper) {
        paper.labels.push_back(label);
        paper.values.push_back(value);
      }
      FigureSeries series = series_of(paper, axis, numeric);
      series.reference = true;
      for (FigurePanel& panel : figure.panels) {
        if (panel.series.size() == 1 && panel.series[0].name.empty()) panel.series[0].name = "ours";
        panel.series.push_back(series);
      }
    }
    files.push_back({.figure = std::move(figure), .path = plot.name});
  }
  return files;
}

std::vector<std::string> plot_tables(const sim::Experiment& experiment,
                                     const sim::ExperimentResult& result) {
  std::vector<std::string> tables;
  for (const sim::ExperimentPlot& plot : experiment.plots) {
    const auto lines = sim::lines_of(plot, result);
    if (!lines.ok()) continue;
    std::vector<std::string> panels;
    for (const sim::PlotLine& line : *lines) {
      if (std::ranges::find(panels, line.panel) == panels.end()) panels.push_back(line.panel);
    }
    for (const std::string& panel : panels) {
      std::vector<std::vector<std::string>> rows{{plot.x}};
      for (const sim::Axis::Value& value : axis_called(result, plot.x).values) {
        rows.push_back({value.label});
      }
      for (const sim::PlotLine& line : *lines) {
        if (line.panel != panel) continue;
        rows[0].push_back(line.name.empty() ? plot.label : line.name);
        for (std::size_t r = 1; r < rows.size(); ++r) {
          const auto found = std::ranges::find(line.labels, rows[r][0]);
          const auto place = static_cast<std::size_t>(found - line.labels.begin());
          rows[r].push_back(found == line.labels.end() ? "-"
                                                       : fmt::format("{:.4g}", line.values[place]));
        }
      }
      const std::string where = panel.empty() ? "" : fmt::format(", {} {}", plot.panels, panel);
      tables.push_back(fmt::format("{}{}\n{}", plot.label, where, format_table(rows)));
    }
  }
  return tables;
}

}  // namespace thalweg::lab
