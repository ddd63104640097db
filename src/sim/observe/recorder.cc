#include "sim/observe/recorder.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.h"
#include "sim/scenario/fault_name.h"

namespace thalweg::sim {
namespace {

// Single flows get one column per pair of hosts up to this many pairs.
constexpr std::size_t kFewPairs = 8;

}  // namespace

RunRecorder::RunRecorder(const Scenario& scenario, RecorderOptions options)
    : scenario_(scenario), options_(options), timeline_(*scenario.topology, options.limits) {
  name_columns();
  name_groups();
}

void RunRecorder::name_columns() {
  const topology::Topology& topology = *scenario_.topology;
  for (const ScenarioFlow& flow : scenario_.flows) {
    const std::pair pair(flow.source, flow.target);
    if (std::ranges::find(pairs_, pair) == pairs_.end()) pairs_.push_back(pair);
    if (pairs_.size() > kFewPairs) break;
  }
  if (pairs_.size() > kFewPairs) {
    pairs_.clear();
    columns_.emplace_back("flows");
  }
  for (const auto& [source, target] : pairs_) {
    columns_.push_back(fmt::format("{} → {}", topology.node(topology.host(source)).name,
                                   topology.node(topology.host(target)).name));
  }
  for (const ScenarioJob& job : scenario_.jobs) columns_.push_back(job.name);
  for (const ScenarioBackground& other : scenario_.background) columns_.push_back(other.name);
}

// Flows have tag 0 for single flows, then one tag per job, then one per background traffic.
std::size_t RunRecorder::column_of(const FlowSpec& spec) const {
  if (spec.tag > 0) {
    const std::size_t tags = scenario_.jobs.size() + scenario_.background.size();
    return columns_.size() - tags + spec.tag - 1;
  }
  const auto found = std::ranges::find(pairs_, std::pair(spec.source, spec.target));
  return found == pairs_.end() ? 0 : static_cast<std::size_t>(found - pairs_.begin());
}

void RunRecorder::name_groups() {
  timeline_.add_group("flow", {});
  for (const ScenarioJob& job : scenario_.jobs) {
    std::vector<std::string> layers;
    layers.reserve(job.model.layers.size());
    for (const ModelLayer& layer : job.model.layers) layers.push_back(layer.name);
    timeline_.add_group(job.name, layers);
  }
  for (const ScenarioBackground& other : scenario_.background) timeline_.add_group(other.name, {});
}

void RunRecorder::attach(Network& network) {
  CHECK(network_ == nullptr, "a recorder is for one run");
  network_ = &network;
  sampler_.emplace(network,
                   SamplerOptions{.groups = columns_.size(),
                                  .group_of = [this](const FlowSpec& s) { return column_of(s); }});
  if (!options_.timeline) return;
  network.on_flow_done([this](const FlowResult& flow) {
    timeline_.add_flow(flow.spec.tag, flow.spec, flow.start, flow.end);
  });
  for (const ScenarioFault& fault : scenario_.faults) {
    timeline_.add_mark(Time::at(fault.at), name_of(fault, *scenario_.topology));
  }
}

void RunRecorder::watch(std::size_t index, TrainingJob& job) {
  if (!options_.timeline) return;
  job.on_compute([this, index, iterations = 0](const ComputeSpan& span) mutable {
    const ScenarioJob& of = scenario_.jobs[index];
    timeline_.add_compute(index + 1, of.hosts[span.worker.index()], span);
    if (span.iteration < iterations) return;
    iterations = span.iteration + 1;
    timeline_.add_mark(span.start, fmt::format("{}: iteration {} begins", of.name, iterations));
  });
}

bool RunRecorder::run(Time until) { return sampler_->run(until); }

void RunRecorder::finish() {
  sampler_->finish();
  finished_ = true;
  end_ = network_->now();
  if (options_.timeline && network_->active_flows() > 0) {
    for (std::size_t f = 0; f < network_->flows_started(); ++f) {
      const auto flow = network_->progress_of(FlowId(static_cast<std::int32_t>(f)));
      if (flow) timeline_.add_flow(flow->spec.tag, flow->spec, flow->start, end_);
    }
  }
}

std::size_t RunRecorder::write(trace::EventWriter& out) {
  CHECK(finished_, "the run is not over");
  return timeline_.write(samples(), columns_, end_, out);
}

}  // namespace thalweg::sim
