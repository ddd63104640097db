// The options of `thalweg bench step`, and what comes of them when they are checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "lab/bench/step/libraries.h"
#include "lab/bench/step/schedule.h"
#include "topology/topology.h"

namespace thalweg::lab::step {

// The options as they were given. bench_step.cc in src/cli says what each means.
struct Options {
  std::string testbed = {};
  std::string topology = {};
  std::string model = {};
  std::string models = {};
  double scale = 1;
  double device_scale = 1;
  std::string bucket = {};
  std::string schedule = "ddp";
  std::vector<std::string> libraries = {};
  std::vector<std::string> against = {};
  std::string bound = {};
  std::string straggler_bound = {};
  int straggler_window = 100;
  std::string stall_every = {};
  std::string stall_for = {};
  std::optional<int> priorities = {};
  std::string loss = {};
  std::vector<std::string> aggregate = {};
  std::optional<int> ranks = {};
  int steps = 40;
  std::int64_t seed = 1;
  std::string timeout = {};
  bool with_auto = false;  // --auto
  bool no_simulation = false;
  bool json = false;
  // For the ranks that a testbed's benchmark starts: the file that rank 0 writes its times to.
  std::string results = {};
};

// The options, checked.
struct Settings {
  Schedule schedule = {};
  std::vector<Library> libraries = {};  // the peers first
  // The network with only the hosts that have a rank; none: not known. Rank i is host i.
  std::optional<topology::Topology> topology = {};
  int ranks = 0;  // 0: as the launcher says
  double loss = 0;
  double bound = 0;
  double straggler_bound = 0;
  int straggler_window = 100;
  int priorities = 7;     // queues of DLCP's data that layers are divided among
  Duration timeout = {};  // of all steps together
};

// Checks the options. The error names the option that is wrong, its value and what is allowed.
[[nodiscard]] Result<Settings> settings_of(const Options& options);

// The words by which a rank of a testbed is started: the same steps and libraries, with times
// written to `results`.
[[nodiscard]] std::vector<std::string> rank_words(const Options& options,
                                                  const std::string& results);

}  // namespace thalweg::lab::step
