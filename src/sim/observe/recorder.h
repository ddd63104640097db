// Watches the run of a scenario, for plots and timelines, without changing its result.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "sim/observe/samples.h"
#include "sim/observe/timeline.h"
#include "sim/scenario/scenario.h"

namespace thalweg::sim {

struct RecorderOptions {
  bool timeline = false;  // whether to keep spans for a timeline, and not only samples
  TimelineOptions limits = {};
};

// run_scenario() drives the recorder; it may be read when the run is over.
class RunRecorder {
 public:
  // The scenario must outlive the recorder.
  explicit RunRecorder(const Scenario& scenario, RecorderOptions options = {});
  RunRecorder(const RunRecorder&) = delete;
  RunRecorder& operator=(const RunRecorder&) = delete;

  // Must be called before anything is put on the network. The network must live until finish(), and
  // do nothing after it.
  void attach(Network& network);
  // Watches job `index` of the scenario. Must be called before the job starts.
  void watch(std::size_t index, TrainingJob& job);
  // Replaces Network::run().
  bool run(Time until);
  void finish();

  [[nodiscard]] const Samples& samples() const { return sampler_->samples(); }
  // Names of the columns of samples().delivered: one column for every pair of hosts with single
  // flows if there are few pairs, else one for all of them; then one for every job and background
  // traffic.
  [[nodiscard]] const std::vector<std::string>& columns() const { return columns_; }
  // Writes the timeline. Returns how many events are left out of it.
  std::size_t write(trace::EventWriter& out);
  [[nodiscard]] std::vector<std::string> host_names() const { return timeline_.host_names(); }

 private:
  [[nodiscard]] std::size_t column_of(const FlowSpec& spec) const;
  void name_columns();
  void name_groups();

  const Scenario& scenario_;
  const RecorderOptions options_;
  std::vector<std::string> columns_;
  std::vector<std::pair<Rank, Rank>> pairs_;  // pairs of hosts with a column of their own
  Timeline timeline_;
  Network* network_ = nullptr;
  std::optional<Sampler> sampler_;
  Time end_;  // when the run ended
  bool finished_ = false;
};

}  // namespace thalweg::sim
