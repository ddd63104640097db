#include "sim/scenario_run.h"

namespace thalweg {
namespace {

// How often progress is told: this many times in the time the scenario may take.
constexpr int kProgressSteps = 1000;

void apply(const LossFault& f, Network& network) {
  network.set_loss(ArcId(2 * f.link.value()), f.probability);
  network.set_loss(ArcId(2 * f.link.value() + 1), f.probability);
}
void apply(const BurstFault& f, Network& network) {
  network.set_bursty_loss(ArcId(2 * f.link.value()), f.good_packets, f.bad_packets);
  network.set_bursty_loss(ArcId(2 * f.link.value() + 1), f.good_packets, f.bad_packets);
}
void apply(const LinkFault& f, Network& network) { network.set_link_up(f.link, f.up); }
void apply(const RateFault& f, Network& network) { network.set_rate_factor(f.link, f.factor); }
void apply(const PauseFault& f, Network& network) { network.set_host_paused(f.host, f.paused); }
void apply(const RestartFault& f, Network& network) { network.restart_switch(f.node); }

std::vector<double> utilisation(const Network& network, const Topology& topology) {
  std::vector<double> result(topology.arc_count(), 0);
  const double seconds = network.now().since_start().s();
  if (seconds == 0) return result;
  for (std::size_t a = 0; a < result.size(); ++a) {
    const Arc arc = topology.arc(ArcId(static_cast<std::int32_t>(a)));
    result[a] =
        static_cast<double>(network.arc_bytes()[a]) / (arc.spec.rate.bytes_per_second() * seconds);
  }
  return result;
}

}  // namespace

Result<ScenarioResult> run_scenario(const Scenario& scenario,
                                    const std::function<void(Time now)>& progress) {
  const Topology& topology = *scenario.topology;
  Network network(topology, scenario.network);
  FlowEnds ends(network);
  ScenarioResult result;
  ends.observe([&](const FlowResult& flow) { result.flows.push_back(flow); });

  std::vector<std::unique_ptr<Connections>> connections;
  std::vector<std::unique_ptr<TrainingJob>> jobs;
  for (const ScenarioJob& job : scenario.jobs) {
    connections.push_back(
        std::make_unique<Connections>(network, ends,
                                      ConnectionOptions{.transport = scenario.transport.get(),
                                                        .most_at_once = scenario.most_at_once,
                                                        .warm = scenario.warm,
                                                        .tag = connections.size() + 1}));
    auto made = TrainingJob::make(job.model, job.training, topology, network, *connections.back());
    if (!made.ok()) return made.error().within("job " + job.name);
    jobs.push_back(std::move(*made));
    jobs.back()->start();
  }
  for (const ScenarioFlow& flow : scenario.flows) {
    network.call_at(Time::at(flow.at), [&network, &scenario, flow] {
      network.start_flow({.source = flow.source,
                          .target = flow.target,
                          .bytes = static_cast<std::uint64_t>(flow.size.count()),
                          .transport = scenario.transport.get(),
                          .warm = false,
                          .tag = 0});
    });
  }
  for (const ScenarioFault& fault : scenario.faults) {
    network.call_at(Time::at(fault.at), [&network, fault] {
      std::visit([&](const auto& what) { apply(what, network); }, fault.what);
    });
  }

  for (int step = 1; step <= kProgressSteps && !result.finished; ++step) {
    result.finished = network.run(Time::at(scenario.until * step / kProgressSteps));
    if (progress) progress(network.now());
  }
  result.end = network.now();
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    result.jobs.push_back(
        {.name = scenario.jobs[j].name,
         .iterations = jobs[j]->results(),
         .done = jobs[j]->done(),
         .samples_per_second = jobs[j]->done() ? jobs[j]->samples_per_second() : 0});
  }
  result.flows_unfinished = network.active_flows();
  result.counters = network.counters();
  result.arc_utilisation = utilisation(network, topology);
  result.violations = network.violations();
  return result;
}

Histogram completion_times_ms(const std::vector<FlowResult>& flows) {
  Histogram times;
  for (const FlowResult& flow : flows) times.add(flow.completion_time().ms());
  return times;
}

}  // namespace thalweg
