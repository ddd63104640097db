// Watches the run of a scenario, for plots and timelines. Does not change what comes out of it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "sim/samples.h"
#include "sim/scenario.h"
#include "sim/timeline.h"

namespace thalweg {

struct RecorderOptions {
  bool timeline = false;  // spans are kept, not only samples
  TimelineOptions limits = {};
};

// run_scenario() drives it; to be read when that is done.
class RunRecorder {
 public:
  // The scenario must outlive the recorder.
  explicit RunRecorder(const Scenario& scenario, RecorderOptions options = {});
  RunRecorder(const RunRecorder&) = delete;
  RunRecorder& operator=(const RunRecorder&) = delete;

  // Before anything is put on the network, which must live until finish() and do nothing after.
  void attach(Network& network);
  // Job `index` of the scenario, before it starts.
  void watch(std::size_t index, TrainingJob& job);
  // Instead of Network::run.
  bool run(Time until);
  void finish();

  [[nodiscard]] const Samples& samples() const { return sampler_->samples(); }
  // Names of the columns of samples().delivered: a column for every pair of hosts with single flows
  // if these are few, or one for them all; then one for every job and background traffic.
  [[nodiscard]] const std::vector<std::string>& columns() const { return columns_; }
  // Writes the timeline, if there is one; how many events are left out of it.
  std::size_t write(EventWriter& out);
  [[nodiscard]] std::vector<std::string> host_names() const { return timeline_.host_names(); }

 private:
  [[nodiscard]] std::size_t column_of(const FlowSpec& spec) const;
  void name_columns();
  void name_groups();

  const Scenario& scenario_;
  const RecorderOptions options_;
  std::vector<std::string> columns_;
  std::vector<std::pair<Rank, Rank>> pairs_;  // that have a column of their own
  Timeline timeline_;
  Network* network_ = nullptr;
  std::optional<Sampler> sampler_;
  Time end_;  // of the run
  bool finished_ = false;
};

}  // namespace thalweg
