#include "lab/figures/sim_plot.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/observe/sample_counts.h"
#include "sim/scenario/fault_name.h"

namespace thalweg::lab {
namespace {

constexpr std::size_t kMostPoints = 200;     // of a curve over time
constexpr std::size_t kMostQuantiles = 500;  // of a distribution
constexpr std::size_t kMostCurves = 8;       // in one panel; there are as many colours
constexpr std::size_t kMostDepths = 80;      // of a curve of queues, which are restless
constexpr std::size_t kManyPorts = 10;       // so many have a p90 of their own
constexpr double kHigh = 0.9;
constexpr double kMiddle = 0.5;
constexpr std::size_t kMostBars = 12;
constexpr double kBitsPerByte = 8;
constexpr double kWide = 10;  // an axis that spans more is logarithmic
// An axis whose values differ by less than this factor would show only noise, and is widened.
constexpr double kNarrow = 1.05;
constexpr double kGiga = 1e9;

// A unit for an axis. unit_for() chooses the one in which the largest value has one to three digits
// before the point.
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

// Builds the figure of one run, panel by panel.
class RunFigure {
 public:
  RunFigure(const sim::Scenario& scenario, const sim::ScenarioResult& result,
            const sim::RunRecorder& recorder)
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
  // The samples [first, last) that make one point of a curve. slots() divides the run evenly.
  struct Slot {
    std::size_t first = 0;
    std::size_t last = 0;
  };
  [[nodiscard]] std::vector<Slot> slots(std::size_t most = kMostPoints) const;
  // The curve that has value(slot) during each slot.
  template <class Value>
  [[nodiscard]] FigureSeries curve(std::string name, Value value,
                                   std::size_t most = kMostPoints) const;

  const sim::Scenario& scenario_;
  const sim::ScenarioResult& result_;
  const sim::RunRecorder& recorder_;
  const sim::Samples& samples_;
  const Unit time_;
  Figure figure_;
};

FigurePanel RunFigure::over_time(PanelKind kind, std::string title, std::string y_label) const {
  FigurePanel panel{.kind = kind,
                    .title = std::move(title),
                    .x_label = fmt::format("time ({})", time_.name),
                    .y_label = std::move(y_label),
                    .x_range = {0, at(result_.end)}};
  for (const sim::ScenarioFault& fault : scenario_.faults) {
    if (Time::at(fault.at) > result_.end) continue;
    panel.marks.push_back({at(Time::at(fault.at)), sim::name_of(fault, *scenario_.topology)});
  }
  return panel;
}

std::vector<RunFigure::Slot> RunFigure::slots(std::size_t most) const {
  const std::size_t stride = (samples_.count() + most - 1) / most;
  std::vector<Slot> result;
  for (std::size_t first = 0; first < samples_.count(); first += stride) {
    result.push_back({first, std::min(first + stride, samples_.count())});
  }
  return result;
}

template <class Value>
FigureSeries RunFigure::curve(std::string name, Value value, std::size_t most) const {
  FigureSeries series{.name = std::move(name)};
  for (const Slot slot : slots(most)) {
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
  const std::vector<topology::ArcId> ports = sim::deepest_ports(samples_, *scenario_.topology);
  if (ports.empty()) return;
  // [slot]: the most that waited at each port during the slot, in order.
  std::vector<std::vector<double>> waited;
  double peak = 0;
  for (const Slot slot : slots(kMostDepths)) {
    std::vector<double>& depths = waited.emplace_back(ports.size(), 0);
    for (std::size_t p = 0; p < ports.size(); ++p) {
      for (std::size_t s = slot.first; s < slot.last; ++s) {
        depths[p] = std::max<double>(depths[p], samples_.deepest[s][ports[p].index()]);
      }
    }
    std::ranges::sort(depths);
    peak = std::max(peak, depths.back());
  }
  const Unit unit = unit_for(peak, {{1, "B"}, {1e3, "kB"}, {1e6, "MB"}, {1e9, "GB"}});
  FigurePanel panel = over_time(PanelKind::kSteps,
                                fmt::format("Queues of {} ports; longest at {}", ports.size(),
                                            scenario_.topology->arc_name(ports.front())),
                                fmt::format("waiting ({})", unit.name));
  const auto add = [&](const char* name, double part) {
    const auto place = static_cast<std::size_t>(part * static_cast<double>(ports.size() - 1));
    std::size_t s = 0;
    panel.series.push_back(
        curve(name, [&](Slot) { return waited[s++][place] / unit.size; }, kMostDepths));
  };
  add("deepest port", 1);
  if (ports.size() >= kManyPorts) add("p90 of the ports", kHigh);
  if (ports.size() > 1) add("median port", kMiddle);
  // A limit far above the peak is left out, because it would flatten the curves.
  const auto limit = [&](Bytes bytes, const char* name) {
    const auto value = static_cast<double>(bytes.count());
    if (value > 0 && value < 2 * peak) panel.references.push_back({value / unit.size, name});
  };
  const sim::QueueOptions& queues = scenario_.network.queues;
  const Bytes of_link = scenario_.topology->arc(ports.front()).spec.buffer;
  limit(queues.port_buffer.count() > 0 ? queues.port_buffer : of_link, "buffer of a port");
  limit(queues.mark_above, "ECN mark");
  figure_.panels.push_back(std::move(panel));
}

void RunFigure::add_losses() {
  if (samples_.count() == 0) return;
  FigurePanel panel = over_time(PanelKind::kSteps, "Packets lost", "packets since the start");
  const auto add = [&](sim::Samples::Cause cause, const char* name) {
    if (samples_.causes[samples_.count() - 1][cause] == 0) return;
    panel.series.push_back(curve(name, [&](Slot slot) {
      return static_cast<double>(samples_.causes[slot.last - 1][cause]);
    }));
  };
  add(sim::Samples::kLostFull, "no buffer");
  add(sim::Samples::kLostSelectively, "selectively");
  add(sim::Samples::kLostToFaults, "to faults");
  if (!panel.series.empty()) figure_.panels.push_back(std::move(panel));
}

void RunFigure::add_lossy_ports() {
  if (samples_.count() == 0) return;
  const auto lost = samples_.lost[samples_.count() - 1];
  std::vector<topology::ArcId> arcs;
  for (topology::ArcId arc(0); arc.index() < lost.size(); ++arc) {
    if (lost[arc.index()] > 0) arcs.push_back(arc);
  }
  if (arcs.size() < 2) return;
  std::ranges::stable_sort(arcs, [&](topology::ArcId a, topology::ArcId b) {
    return lost[a.index()] > lost[b.index()];
  });
  arcs.resize(std::min(arcs.size(), kMostCurves));
  FigurePanel panel{.kind = PanelKind::kBars,
                    .title = "Packets lost, by link",
                    .y_label = "packets",
                    .series = {{.name = ""}}};
  for (const topology::ArcId arc : arcs) {
    panel.categories.push_back(scenario_.topology->arc_name(arc));
    panel.series.front().y.push_back(lost[arc.index()]);
  }
  figure_.panels.push_back(std::move(panel));
}

void RunFigure::add_iterations() {
  std::size_t most = 0;
  for (const sim::JobResult& job : result_.jobs) most = std::max(most, job.iterations.size());
  if (most < 2) return;
  const bool bars = most <= kMostBars;
  FigurePanel panel{.kind = bars ? PanelKind::kBars : PanelKind::kLines,
                    .title = "Iteration times",
                    .x_label = "iteration",
                    .y_label = "time (ms)"};
  for (std::size_t i = 1; bars && i <= most; ++i) panel.categories.push_back(std::to_string(i));
  for (const sim::JobResult& job : result_.jobs) {
    if (panel.series.size() == kMostCurves) break;
    FigureSeries series{.name = job.name};
    for (const sim::IterationResult& iteration : job.iterations) {
      if (!bars) series.x.push_back(static_cast<double>(series.x.size() + 1));
      series.y.push_back(iteration.duration().ms());
    }
    if (bars) series.y.resize(most, std::nan(""));
    panel.series.push_back(std::move(series));
  }
  figure_.panels.push_back(std::move(panel));
}

// The distribution of the values: x is a value, y the fraction of values that are not above it.
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
  for (const sim::FlowResult& flow : result_.flows) {
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
  if (largest < kNarrow * smallest) panel.x_range = {smallest / kNarrow, largest * kNarrow};
  panel.x_label = panel.log_x ? "completion time (ms, logarithmic)" : "completion time (ms)";
  figure_.panels.push_back(std::move(panel));
}

// How many times longer flows took than on an empty network. This shows the tail, which the
// distribution of completion times hides.
void RunFigure::add_slowdowns() {
  FigurePanel panel{.kind = PanelKind::kBars,
                    .title = "Slow-down of flows against an empty network",
                    .y_label = "times",
                    .categories = {"p50", "p90", "p99", "p99.9", "max"}};
  std::vector<Histogram> slowdowns(result_.groups.size());
  for (const sim::FlowResult& flow : result_.flows) {
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

Figure figure_of(const sim::Scenario& scenario, const sim::ScenarioResult& result,
                 const sim::RunRecorder& recorder) {
  return RunFigure(scenario, result, recorder).make();
}

}  // namespace thalweg::lab
