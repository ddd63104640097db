#include "sim/observe/sample_counts.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <optional>

namespace thalweg::sim {
namespace {

constexpr double kGiga = 1e9;

class CountWriter {
 public:
  CountWriter(const Samples& samples, std::size_t most, std::deque<std::string>& names,
              std::vector<trace::Event>& events)
      : samples_(samples), most_(most), names_(names), events_(events) {}

  // Adds one counter; `value_in` returns its value during each sample.
  void add(std::string name, const std::function<double(std::size_t sample)>& value_in) {
    names_.push_back(std::move(name));
    std::optional<double> last;
    for (std::size_t s = 0; s < samples_.count(); ++s) {
      const double value = value_in(s);
      if (last == value) continue;
      last = value;
      if (written_ == most_) {
        ++left_out_;
        continue;
      }
      ++written_;
      events_.emplace_back(trace::CounterEvent{
          .at = samples_.start_of(s), .rank = {}, .counter = names_.back(), .value = value});
    }
  }
  [[nodiscard]] std::size_t left_out() const { return left_out_; }

 private:
  const Samples& samples_;
  const std::size_t most_;
  std::deque<std::string>& names_;
  std::vector<trace::Event>& events_;
  std::size_t written_ = 0;
  std::size_t left_out_ = 0;
};

}  // namespace

std::vector<topology::ArcId> deepest_ports(const Samples& samples,
                                           const topology::Topology& topology) {
  std::vector<double> depths(topology.arc_count(), 0);  // [arc]: bytes times seconds
  for (std::size_t s = 0; s < samples.count(); ++s) {
    const auto row = samples.deepest[s];
    const double seconds = (samples.ends[s] - samples.start_of(s)).s();
    for (std::size_t a = 0; a < depths.size(); ++a) depths[a] += row[a] * seconds;
  }
  std::vector<topology::ArcId> ports;
  for (topology::ArcId arc(0); arc.index() < depths.size(); ++arc) {
    const bool of_switch = !topology.rank_of(topology.arc(arc).from).valid();
    if (of_switch && depths[arc.index()] > 0) ports.push_back(arc);
  }
  std::ranges::stable_sort(ports, [&](topology::ArcId a, topology::ArcId b) {
    return depths[a.index()] > depths[b.index()];
  });
  return ports;
}

std::size_t append_sample_counts(const Samples& samples, const std::vector<std::string>& delivered,
                                 const topology::Topology& topology, std::size_t most,
                                 std::deque<std::string>& names,
                                 std::vector<trace::Event>& events) {
  if (samples.count() == 0) return 0;
  CountWriter writer(samples, most, names, events);
  for (std::size_t g = 0; g < delivered.size(); ++g) {
    writer.add(fmt::format("goodput {} (Gb/s)", delivered[g]), [&](std::size_t s) {
      const std::uint64_t before = s == 0 ? 0 : samples.delivered[s - 1][g];
      const auto bits = 8 * static_cast<double>(samples.delivered[s][g] - before);
      return bits / (samples.ends[s] - samples.start_of(s)).s() / kGiga;
    });
  }
  const auto last_lost = samples.lost[samples.count() - 1];
  for (topology::ArcId arc(0); arc.index() < last_lost.size(); ++arc) {
    if (last_lost[arc.index()] == 0) continue;
    writer.add(fmt::format("lost {} (packets)", topology.arc_name(arc)),
               [&](std::size_t s) { return samples.lost[s][arc.index()]; });
  }
  for (const topology::ArcId port : deepest_ports(samples, topology)) {
    writer.add(fmt::format("queue {} (bytes)", topology.arc_name(port)),
               [&](std::size_t s) { return samples.deepest[s][port.index()]; });
  }
  return writer.left_out();
}

}  // namespace thalweg::sim
