#include "cli/sim_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/fault_name.h"
#include "sim/sample_counts.h"

namespace thalweg {
namespace {

constexpr std::size_t kMostPoints = 200;     // of a curve over time
constexpr std::size_t kMostQuantiles = 500;  // of a distribution
constexpr std::size_t kMostCurves = 8;       // in one panel: as many as there are colours
constexpr std::size_t kMostPorts = 3;
constexpr std::size_t kMostBars = 12;
constexpr double kBitsPerByte = 8;
constexpr double kWide = 10;  // an axis that spans more is logarithmic
constexpr double kGiga = 1e9;

// A unit in which the largest value has one to three digits before the point.
struct Unit {
  double size = 1;
  std::string name;
};
Unit unit_for(double largest, std::vector<Unit> units) {
  Unit chosen = units.front();
  for (const Unit& unit : units) {
    if (largest >= 2 * unit.size) chosen = unit;
  }
  return chosen;
}

class RunFigure {
 public:
  RunFigure(const Scenario& scenario, const ScenarioResult& result, const RunRecorder& recorder)
      : scenario_(scenario),
        result_(result),
        recorder_(recorder),
        samples_(recorder.samples()),
        time_(unit_for(result.end.since_start().s(),
                       {{1e-6, "µs"}, {1e-3, "ms"}, {1, "s"}, {3600, "h"}})) {}

  Figure make();

 private:
  FigurePanel over_time(PanelKind kind, std::string title, std::string y_label) const;
  void add_goodput();
  void add_queues();
  void add_losses();
  void add_lossy_ports();
  void add_iterations();
  void add_completion_times();
  void add_slowdowns();

  [[nodiscard]] double at(Time time) const { return time.since_start().s() / time_.size; }
  // Samples [first, last) that make one point of a curve, the whole run dealt evenly.
  struct Slot {
    std::size_t first = 0;
    std::size_t last = 0;
  };
  [[nodiscard]] std::vector<Slot> slots() const;
  // A curve that holds `value` over each slot.
  template <class Value>
  [[nodiscard]] FigureSeries curve(std::string name, Value value) const;

  const Scenario& scenario_;
  const ScenarioResult& result_;
  const RunRecorder& recorder_;
  const Samples& samples_;
  const Unit time_;
  Figure figure_;
};

FigurePanel RunFigure::over_time(PanelKind kind, std::string title, std::string y_label) const {
  FigurePanel panel{.kind = kind,
                    .title = std::move(title),
                    .x_label = fmt::format("time ({})", time_.name),
                    .y_label = std::move(y_label),
                    .x_range = {0, at(result_.end)}};
  for (const ScenarioFault& fault : scenario_.faults) {
    if (Time::at(fault.at) > result_.end) continue;
    panel.marks.push_back({at(Time::at(fault.at)), name_of(fault, *scenario_.topology)});
  }
  return panel;
}

std::vector<RunFigure::Slot> RunFigure::slots() const {
  const std::size_t stride = (samples_.count() + kMostPoints - 1) / kMostPoints;
  std::vector<Slot> result;
  for (std::size_t first = 0; first < samples_.count(); first += stride) {
    result.push_back({first, std::min(first + stride, samples_.count())});
  }
  return result;
}

template <class Value>
FigureSeries RunFigure::curve(std::string name, Value value) const {
  FigureSeries series{.name = std::move(name)};
  for (const Slot slot : slots()) {
    series.x.push_back(at(samples_.start_of(slot.first)));
    series.y.push_back(value(slot));
  }
  if (series.x.empty()) return series;
  series.x.push_back(at(samples_.ends.back()));
  series.y.push_back(series.y.back());
  return series;
}

void RunFigure::add_goodput() {
  if (samples_.count() == 0) return;
  const auto total = samples_.delivered[samples_.count() - 1];
  std::vector<std::size_t> columns(total.size());
  std::iota(columns.begin(), columns.end(), std::size_t{0});
  std::ranges::stable_sort(columns, [&](auto a, auto b) { return total[a] > total[b]; });
  columns.resize(std::min(columns.size(), kMostCurves));
  std::ranges::sort(columns);
  FigurePanel panel = over_time(PanelKind::kStack, "Goodput, stacked", "Gb/s");
  for (const std::size_t c : columns) {
    if (total[c] == 0) continue;
    panel.series.push_back(curve(recorder_.columns()[c], [&](Slot slot) {
      const std::uint64_t before = slot.first == 0 ? 0 : samples_.delivered[slot.first - 1][c];
      const auto bytes = static_cast<double>(samples_.delivered[slot.last - 1][c] - before);
      const Duration time = samples_.ends[slot.last - 1] - samples_.start_of(slot.first);
      return kBitsPerByte * bytes / time.s() / kGiga;
    }));
  }
  if (!panel.series.empty()) figure_.panels.push_back(std::move(panel));
}

void RunFigure::add_queues() {
  std::vector<ArcId> ports = deepest_ports(samples_, *scenario_.topology);
  if (ports.empty()) return;
  ports.resize(std::min(ports.size(), kMostPorts));
  double peak = 0;
  for (const ArcId port : ports) {
    for (std::size_t s = 0; s < samples_.count(); ++s) {
      peak = std::max<double>(peak, samples_.deepest[s][port.index()]);
    }
  }
  const Unit unit = unit_for(peak, {{1, "B"}, {1e3, "kB"}, {1e6, "MB"}, {1e9, "GB"}});
  FigurePanel panel = over_time(PanelKind::kSteps, "Queues of the deepest ports",
                                fmt::format("waiting ({})", unit.name));
  for (const ArcId port : ports) {
    panel.series.push_back(curve(scenario_.topology->arc_name(port), [&](Slot slot) {
      std::uint32_t deepest = 0;
      for (std::size_t s = slot.first; s < slot.last; ++s) {
        deepest = std::max(deepest, samples_.deepest[s][port.index()]);
      }
      return static_cast<double>(deepest) / unit.size;
    }));
  }
  // A limit that nothing comes near would only flatten the curves.
  const auto limit = [&](Bytes bytes, const char* name) {
    const auto value = static_cast<double>(bytes.count());
    if (value > 0 && value < 2 * peak) panel.references.push_back({value / unit.size, name});
  };
  const QueueOptions& queues = scenario_.network.queues;
  const Bytes of_link = scenario_.topology->arc(ports.front()).spec.buffer;
  limit(queues.port_buffer.count() > 0 ? queues.port_buffer : of_link, "buffer of a port");
  limit(queues.mark_above, "ECN mark");
  figure_.panels.push_back(std::move(panel));
}

void RunFigure::add_losses() {
  if (samples_.count() == 0) return;
  FigurePanel panel = over_time(PanelKind::kSteps, "Packets lost", "packets since the start");
  const auto add = [&](Samples::Cause cause, const char* name) {
    if (samples_.causes[samples_.count() - 1][cause] == 0) return;
    panel.series.push_back(curve(name, [&](Slot slot) {
      return static_cast<double>(samples_.causes[slot.last - 1][cause]);
    }));
  };
  add(Samples::kLostFull, "no buffer");
  add(Samples::kLostSelectively, "selectively");
  add(Samples::kLostToFaults, "to faults");
  if (!panel.series.empty()) figure_.panels.push_back(std::move(panel));
}

void RunFigure::add_lossy_ports() {
  if (samples_.count() == 0) return;
  const auto lost = samples_.lost[samples_.count() - 1];
  std::vector<ArcId> arcs;
  for (ArcId arc(0); arc.index() < lost.size(); ++arc) {
    if (lost[arc.index()] > 0) arcs.push_back(arc);
  }
  if (arcs.size() < 2) return;
  std::ranges::stable_sort(arcs,
                           [&](ArcId a, ArcId b) { return lost[a.index()] > lost[b.index()]; });
  arcs.resize(std::min(arcs.size(), kMostCurves));
  FigurePanel panel{.kind = PanelKind::kBars,
                    .title = "Packets lost, by link",
                    .y_label = "packets",
                    .series = {{.name = ""}}};
  for (const ArcId arc : arcs) {
    panel.categories.push_back(scenario_.topology->arc_name(arc));
    panel.series.front().y.push_back(lost[arc.index()]);
  }
  figure_.panels.push_back(std::move(panel));
}

void RunFigure::add_iterations() {
  std::size_t most = 0;
  for (const JobResult& job : result_.jobs) most = std::max(most, job.iterations.size());
  if (most < 2) return;
  const bool bars = most <= kMostBars;
  FigurePanel panel{.kind = bars ? PanelKind::kBars : PanelKind::kLines,
                    .title = "Iteration times",
                    .x_label = "iteration",
                    .y_label = "time (ms)"};
  for (std::size_t i = 1; bars && i <= most; ++i) panel.categories.push_back(std::to_string(i));
  for (const JobResult& job : result_.jobs) {
    if (panel.series.size() == kMostCurves) break;
    FigureSeries series{.name = job.name};
    for (const IterationResult& iteration : job.iterations) {
      if (!bars) series.x.push_back(static_cast<double>(series.x.size() + 1));
      series.y.push_back(iteration.duration().ms());
    }
    if (bars) series.y.resize(most, std::nan(""));
    panel.series.push_back(std::move(series));
  }
  figure_.panels.push_back(std::move(panel));
}

// The values at evenly spaced parts of all, and the parts.
FigureSeries distribution(std::string name, std::vector<double> values) {
  FigureSeries series{.name = std::move(name)};
  std::ranges::sort(values);
  const std::size_t points = std::min(values.size(), kMostQuantiles);
  series.x.push_back(values.front());
  series.y.push_back(0);
  for (std::size_t p = 1; p <= points; ++p) {
    const std::size_t rank = (p * values.size() + points - 1) / points;
    series.x.push_back(values[rank - 1]);
    series.y.push_back(static_cast<double>(rank) / static_cast<double>(values.size()));
  }
  return series;
}

void RunFigure::add_completion_times() {
  FigurePanel panel{.kind = PanelKind::kSteps,
                    .title = "Flow completion times",
                    .y_label = "part of the flows",
                    .y_range = {0, 1.02}};
  std::vector<std::vector<double>> taken(result_.groups.size());
  std::vector<std::vector<double>> least(result_.groups.size());
  for (const FlowResult& flow : result_.flows) {
    taken[flow.spec.tag].push_back(flow.completion_time().ms());
    least[flow.spec.tag].push_back(flow.oracle.ms());
  }
  double smallest = HUGE_VAL;
  double largest = 0;
  for (std::size_t g = 0; g < taken.size() && panel.series.size() < 2 * kMostCurves; ++g) {
    if (taken[g].empty()) continue;
    smallest = std::min(smallest, std::ranges::min(least[g]));
    largest = std::max(largest, std::ranges::max(taken[g]));
    const auto color = static_cast<int>(panel.series.size() / 2);
    panel.series.push_back(distribution(result_.groups[g], std::move(taken[g])));
    panel.series.back().color = color;
    panel.series.push_back(
        distribution(result_.groups[g] + ", on an empty network", std::move(least[g])));
    panel.series.back().color = color;
    panel.series.back().reference = true;
  }
  if (panel.series.empty()) return;
  panel.log_x = largest > kWide * smallest;
  panel.x_label = panel.log_x ? "completion time (ms, logarithmic)" : "completion time (ms)";
  figure_.panels.push_back(std::move(panel));
}

// The tail, which a distribution hides: how much longer than on an empty network.
void RunFigure::add_slowdowns() {
  FigurePanel panel{.kind = PanelKind::kBars,
                    .title = "Slow-down of flows against an empty network",
                    .y_label = "times",
                    .categories = {"p50", "p90", "p99", "p99.9", "max"}};
  std::vector<Histogram> slowdowns(result_.groups.size());
  for (const FlowResult& flow : result_.flows) {
    slowdowns[flow.spec.tag].add(flow.completion_time().s() / flow.oracle.s());
  }
  for (std::size_t g = 0; g < slowdowns.size() && panel.series.size() < kMostCurves; ++g) {
    if (slowdowns[g].count() == 0) continue;
    FigureSeries series{.name = result_.groups[g]};
    for (const double percent : {50.0, 90.0, 99.0, 99.9, 100.0}) {
      series.y.push_back(slowdowns[g].percentile(percent));
    }
    panel.log_y |= slowdowns[g].max() > kWide;
    panel.series.push_back(std::move(series));
  }
  if (panel.log_y) panel.y_label += " (logarithmic)";
  if (!panel.series.empty()) figure_.panels.push_back(std::move(panel));
}

Figure RunFigure::make() {
  figure_.title = scenario_.name.empty() ? "scenario" : scenario_.name;
  add_goodput();
  add_queues();
  add_losses();
  add_lossy_ports();
  add_iterations();
  add_completion_times();
  add_slowdowns();
  if (figure_.panels.empty()) {
    figure_.panels.push_back({.kind = PanelKind::kLines, .title = "nothing was sent"});
  }
  return std::move(figure_);
}

}  // namespace

Figure figure_of(const Scenario& scenario, const ScenarioResult& result,
                 const RunRecorder& recorder) {
  return RunFigure(scenario, result, recorder).make();
}

}  // namespace thalweg
