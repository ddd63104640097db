// Runs a scenario and says what came out.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/histogram.h"
#include "sim/scenario.h"

namespace thalweg {

struct JobResult {
  std::string name;
  std::vector<IterationResult> iterations;  // those that ended
  bool done = false;
  double samples_per_second = 0;  // if done
  double goodput_gbps = 0;        // if done
  std::size_t workers = 0;
  std::vector<Duration> worker_paces = {};  // [worker], if done: the time it took an iteration
  std::optional<AggregationCounters> aggregation = {};
};

struct ScenarioResult {
  bool finished = false;  // nothing was left to do before `until`
  Time end;
  std::vector<JobResult> jobs;
  // What a flow's tag means: the scenario's single flows, its jobs, its background traffic.
  std::vector<std::string> groups;
  std::vector<FlowResult> flows;  // that ended, in the order they did
  std::size_t flows_unfinished = 0;
  std::vector<std::string> failures;  // why jobs with aggregation failed
  NetworkCounters counters;
  std::vector<double> arc_utilisation;  // [arc]: part of the time it was sending
  std::vector<std::string> violations;  // what the checkers found; must be empty
};

class RunRecorder;

// `progress(now)` is called now and then; `recorder`, if there is one, sees it all. The scenario
// must outlive the call.
Result<ScenarioResult> run_scenario(const Scenario& scenario,
                                    const std::function<void(Time now)>& progress,
                                    RunRecorder* recorder = nullptr);

// Flow completion times in milliseconds, of all flows or of one group.
Histogram completion_times_ms(const std::vector<FlowResult>& flows);
Histogram completion_times_ms(const std::vector<FlowResult>& flows, std::size_t group);

}  // namespace thalweg
