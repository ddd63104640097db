#include "lab/sweep/run_output.h"

#include <fmt/core.h>

#include <vector>

#include "base/histogram.h"
#include "base/units.h"
#include "lab/console.h"
#include "lab/figures/sim_summary.h"

namespace thalweg::lab {

std::string run_text(const sim::ScenarioResult& r, const sim::Scenario& scenario) {
  std::string text = fmt::format(
      "{} over {}\n{} after {} of simulated time\n\n",
      scenario.name.empty() ? "scenario" : scenario.name, scenario.transport->describe(),
      r.finished ? "finished" : "not finished", to_human(r.end.since_start()));
  if (!r.jobs.empty()) {
    std::vector<std::vector<std::string>> rows{{"job", "iterations", "first", "last", "samples/s"}};
    for (const sim::JobResult& job : r.jobs) {
      const bool any = !job.iterations.empty();
      rows.push_back({job.name, std::to_string(job.iterations.size()),
                      any ? to_human(job.iterations.front().duration()) : "-",
                      any ? to_human(job.iterations.back().duration()) : "-",
                      job.done ? fmt::format("{:.1f}", job.samples_per_second) : "not done"});
    }
    text += format_table(rows) + "\n";
  }
  for (const std::string& failure : r.failures) text += "failed: " + failure + "\n";
  const Histogram times = sim::completion_times_ms(r.flows);
  if (times.count() > 0) {
    text += format_table({{"flows", "mean", "p50", "p99", "p99.9", "max"},
                          {std::to_string(times.count()), fmt::format("{:.3f} ms", times.mean()),
                           fmt::format("{:.3f} ms", times.percentile(50)),
                           fmt::format("{:.3f} ms", times.percentile(99)),
                           fmt::format("{:.3f} ms", times.percentile(99.9)),
                           fmt::format("{:.3f} ms", times.max())}}) +
            "\n";
  }
  return text + network_summary(r, *scenario.topology);
}

std::string flows_csv(const sim::ScenarioResult& r, const topology::Topology& topology) {
  std::string text =
      "from,to,bytes,job,asked_us,start_us,completion_us,oracle_us,retransmissions,timeouts,"
      "arrived\n";
  for (const sim::FlowResult& f : r.flows) {
    text += fmt::format("{},{},{},{},{:.6f},{:.6f},{:.6f},{:.6f},{},{},{:.6f}\n",
                        topology.node(topology.host(f.spec.source)).name,
                        topology.node(topology.host(f.spec.target)).name, f.spec.bytes, f.spec.tag,
                        f.asked.since_start().us(), f.start.since_start().us(),
                        f.completion_time().us(), f.oracle.us(), f.counters.retransmissions,
                        f.counters.timeouts, f.arrived);
  }
  return text;
}

}  // namespace thalweg::lab
