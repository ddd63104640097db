#include "lab/figures/sim_summary.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "lab/console.h"

namespace thalweg::lab {
namespace {

constexpr std::size_t kBusiestLinks = 5;

std::string busiest_links(const sim::ScenarioResult& result, const topology::Topology& topology) {
  std::vector<topology::ArcId> arcs;
  for (topology::ArcId arc(0); arc.index() < result.arc_utilisation.size(); ++arc) {
    if (result.arc_utilisation[arc.index()] > 0) arcs.push_back(arc);
  }
  if (arcs.empty()) return "";
  const auto shown = std::min(arcs.size(), kBusiestLinks);
  std::ranges::partial_sort(arcs, arcs.begin() + static_cast<std::ptrdiff_t>(shown),
                            [&](topology::ArcId a, topology::ArcId b) {
                              const double of_a = result.arc_utilisation[a.index()];
                              const double of_b = result.arc_utilisation[b.index()];
                              return of_a != of_b ? of_a > of_b : a < b;
                            });
  std::vector<std::vector<std::string>> rows{{"busiest links", "rate", "used"}};
  for (std::size_t i = 0; i < shown; ++i) {
    rows.push_back({topology.arc_name(arcs[i]), to_string(topology.arc(arcs[i]).spec.rate),
                    fmt::format("{:.1f} %", 100 * result.arc_utilisation[arcs[i].index()])});
  }
  return format_table(rows) + '\n';
}

}  // namespace

std::string network_summary(const sim::ScenarioResult& result, const topology::Topology& topology) {
  const sim::NetworkCounters& c = result.counters;
  double payload = 0;
  for (const sim::FlowResult& flow : result.flows) payload += static_cast<double>(flow.spec.bytes);
  const double seconds = result.end.since_start().s();
  const auto lost = static_cast<double>(c.drops_full + c.drops_selective + c.drops_fault);
  const auto sent = static_cast<double>(std::max<std::uint64_t>(1, c.packets_sent));
  std::string text = busiest_links(result, topology);
  if (seconds > 0) {
    text += fmt::format("goodput {:.3g} Gb/s over all flows that ended, {} unfinished\n",
                        8e-9 * payload / seconds, result.flows_unfinished);
  }
  text += fmt::format(
      "{} packets, {:.3g} % lost: {} to full buffers, {} selectively, {} to faults; {} marked\n",
      c.packets_sent, 100 * lost / sent, c.drops_full, c.drops_selective, c.drops_fault, c.marks);
  return text;
}

}  // namespace thalweg::lab
