// Runs a scenario and returns its result.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/histogram.h"
#include "sim/scenario/scenario.h"

namespace thalweg::sim {

struct JobResult {
  std::string name;
  std::vector<IterationResult> iterations;  // those that ended
  bool done = false;
  double samples_per_second = 0;  // if done
  double goodput_gbps = 0;        // if done
  std::size_t workers = 0;
  std::vector<Duration> worker_paces = {};  // [worker], if done: the mean time of an iteration
  std::optional<AggregationCounters> aggregation = {};
};

struct ScenarioResult {
  bool finished = false;  // nothing was left to do before `until`
  Time end;
  std::vector<JobResult> jobs;
  // What each tag of a flow stands for: the scenario's single flows, its jobs, its background
  // traffic.
  std::vector<std::string> groups;
  std::vector<FlowResult> flows;  // those that ended, in the order in which they did
  std::size_t flows_unfinished = 0;
  std::vector<std::string> failures;  // why jobs with aggregation failed
  NetworkCounters counters;
  std::vector<double> arc_utilisation;  // [arc]: share of the time it was sending
  std::vector<std::string> violations;  // messages of the checkers; must be empty
};

class RunRecorder;

// What in the scenario needs a network of one shard; empty if it can be divided.
std::optional<std::string> why_one_shard(const Scenario& scenario);

// Calls `progress(now, share)` at regular intervals, with the share of the work that is done, from
// 0 to 1; `recorder`, if there is one, watches the run. The scenario must outlive the call. The
// result is the same for any sharding; with a recorder, or if why_one_shard() names a reason, the
// network has one shard.
using RunProgress = std::function<void(Time now, double share)>;
Result<ScenarioResult> run_scenario(const Scenario& scenario, const RunProgress& progress,
                                    RunRecorder* recorder = nullptr, const Sharding& sharding = {});

// Flow completion times in milliseconds, of all flows or of one group.
Histogram completion_times_ms(const std::vector<FlowResult>& flows);
Histogram completion_times_ms(const std::vector<FlowResult>& flows, std::size_t group);

}  // namespace thalweg::sim
