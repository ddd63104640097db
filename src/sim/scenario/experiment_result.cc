// Computes the claims and plots of an experiment from the results of its points.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/histogram.h"
#include "sim/scenario/experiment.h"

namespace thalweg::sim {
namespace {

constexpr double kPercent = 100;

std::size_t place_of(const ExperimentResult& result, const std::string& axis) {
  const auto found = std::ranges::find(result.axes, axis, &Axis::name);
  CHECK(found != result.axes.end(), "'{}' is not an axis", axis);
  return static_cast<std::size_t>(found - result.axes.begin());
}

bool is_selected(const ExperimentResult& result, const SweepPoint& point, const Selection& of) {
  return std::ranges::all_of(of, [&](const auto& entry) {
    const auto& [axis, labels] = entry;
    return std::ranges::find(labels, point.labels[place_of(result, axis)]) != labels.end();
  });
}

// The point's value at the path; empty if the point did not finish.
Result<std::optional<double>> measured(const ExperimentResult& result, std::size_t point,
                                       const std::string& path) {
  Result<std::optional<double>> value = measure_if_any(result.results[point], path);
  if (value.ok()) return value;
  return value.error().within(fmt::format("{}", fmt::join(result.points[point].labels, ", ")));
}

using Base = std::optional<std::map<std::string, std::string>>;

// The point's value, divided by that of its base if there is one. Empty if either did not finish or
// the base was not run.
Result<std::optional<double>> value_at(const ExperimentResult& result, std::size_t point,
                                       const std::string& path, const Base& over) {
  THALWEG_TRY(const std::optional<double> value, measured(result, point, path));
  if (!over || !value) return value;
  std::vector<std::string> labels = result.points[point].labels;
  for (const auto& [axis, label] : *over) labels[place_of(result, axis)] = label;
  const auto base = std::ranges::find(result.points, labels, &SweepPoint::labels);
  if (base == result.points.end()) return std::optional<double>();
  THALWEG_TRY(const std::optional<double> divisor,
              measured(result, static_cast<std::size_t>(base - result.points.begin()), path));
  if (!divisor) return divisor;
  if (*divisor == 0) return Error(fmt::format("'{}' is 0 at {}", path, fmt::join(labels, ", ")));
  return std::optional(*value / *divisor);
}

double taken(Claim::Take take, const Histogram& values, double log_sum) {
  switch (take) {
    case Claim::Take::kMean:
      return values.mean();
    case Claim::Take::kGeometricMean:
      return std::exp(log_sum / static_cast<double>(values.count()));
    case Claim::Take::kMedian:
      return values.percentile(50);
    case Claim::Take::kMin:
      return values.min();
    case Claim::Take::kMax:
      return values.max();
  }
  CHECK(false, "no such way to take");
}

}  // namespace

Result<std::optional<double>> evaluate(const Claim& claim, const ExperimentResult& result) {
  Histogram values;
  double log_sum = 0;
  for (std::size_t p = 0; p < result.points.size(); ++p) {
    if (!is_selected(result, result.points[p], claim.of)) continue;
    THALWEG_TRY(const std::optional<double> value, value_at(result, p, claim.measure, claim.over));
    if (!value) continue;
    const double counted = claim.as_reduction ? (1 - *value) * kPercent : *value;
    values.add(counted);
    if (claim.take == Claim::Take::kGeometricMean) log_sum += std::log(counted);
  }
  if (values.count() == 0) return std::optional<double>();
  return std::optional(taken(claim.take, values, log_sum));
}

Result<std::vector<PlotLine>> lines_of(const ExperimentPlot& plot, const ExperimentResult& result) {
  std::vector<PlotLine> lines;
  const auto label_at = [&](const SweepPoint& point, const std::string& axis) {
    return axis.empty() ? std::string() : point.labels[place_of(result, axis)];
  };
  for (std::size_t p = 0; p < result.points.size(); ++p) {
    const SweepPoint& point = result.points[p];
    if (!is_selected(result, point, plot.of)) continue;
    THALWEG_TRY(const std::optional<double> value, value_at(result, p, plot.measure, plot.over));
    if (!value) continue;
    const std::string panel = label_at(point, plot.panels);
    const std::string name = label_at(point, plot.lines);
    auto line = std::ranges::find_if(
        lines, [&](const PlotLine& l) { return l.panel == panel && l.name == name; });
    if (line == lines.end()) {
      lines.push_back({.panel = panel, .name = name, .labels = {}, .values = {}});
      line = lines.end() - 1;
    }
    line->labels.push_back(label_at(point, plot.x));
    line->values.push_back(*value);
  }
  return lines;
}

}  // namespace thalweg::sim
