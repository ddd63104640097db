// The results of `thalweg bench step`, and their reports.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/communicator.h>
#include <thalweg/result.h>

#include "base/histogram.h"
#include "lab/bench/step/libraries.h"
#include "lab/bench/step/settings.h"

namespace thalweg::lab::step {

// What the ranks measured of one library.
struct Measured {
  Library library;
  std::string version;
  std::vector<double> steps_ms;            // of the slowest rank in each step
  std::int64_t wrong = 0;                  // elements, over all ranks and turns
  std::vector<AutoDecision> choices = {};  // of a library that chooses by trials
};

// One library, with what can be said without the network.
struct Row {
  Measured measured;
  Histogram steps_ms;
  std::optional<double> limit_ms;      // none: the topology is not known
  std::optional<double> simulated_ms;  // none: the simulator was not asked, or has no such world
};

struct Report {
  Options options;
  Settings settings;
  std::vector<Row> rows;

  [[nodiscard]] std::int64_t wrong() const;
};

// Adds the limits, and what the simulator predicts.
[[nodiscard]] Result<Report> report_of(const Options& options, const Settings& settings,
                                       std::vector<Measured> measured);

[[nodiscard]] nlohmann::ordered_json to_json(const Report& report);
[[nodiscard]] std::string to_text(const Report& report);

// What the ranks of a testbed pass to the benchmark, and back.
[[nodiscard]] std::string measured_to_text(const std::vector<Measured>& measured);
[[nodiscard]] Result<std::vector<Measured>> measured_from_text(const std::string& text);

}  // namespace thalweg::lab::step
