// Finds the thresholds of a switch port for `thalweg tune thresholds` (DLCP, appendix B): from
// where on the port drops small gradients, and from where on all.
//
// The port that is tuned is the busiest one that a switch feeds when a plan of the scheme moves the
// whole model over the network. Its rate and bytes, with the model's computing time, give the mean
// load. Its buffer is what the queues share.
#pragma once

#include <string>
#include <vector>

#include <thalweg/result.h>

#include "base/segment_tag.h"
#include "base/units.h"
#include "sim/workload/model.h"
#include "tune/switch_settings.h"
#include "tune/thresholds.h"
#include "tune/weights.h"

namespace thalweg::lab {

// The part of a port's buffer that is kept free for control messages, which have a queue of their
// own.
inline constexpr double kControlShare = 0.05;

// The options of the command, as they were given.
struct ThresholdOptions {
  std::string model;               // a layer table: a name, or a file
  std::string models;              // folder of the tables; empty: the project's
  std::string topology;            // a file or a shorthand
  std::string scheme = "ps";       // how the model is synchronized
  std::string weights;             // file that says what losses cost; empty: the defaults
  std::string buffer;              // of a port; empty: what the topology says
  std::string packet = "1500B";    // size of one
  std::string load = "0.9";        // arrivals over capacity of the port, or "mean"
  std::string format = "table";    // table, json, thalweg, sonic, cumulus or onyx
  std::vector<std::string> ports;  // of the switch, to configure; empty: one, by the format
  int queues = kPriorityCount;     // of a port, the first one for control
  double small_fraction = 0.5;     // share of the packets that carry small gradients
};

// The port that is tuned and what is known of it before the solver runs.
struct TunedPort {
  sim::ModelTable model;
  std::string name;
  Bandwidth rate;
  Bytes bytes;    // through the port in one iteration
  Duration busy;  // how long they take
  double mean_load = 0;
  double load = 0;  // that it is tuned for
  Bytes buffer;
  Bytes packet;
  tune::QueueLoads loads;
  double exponent = 1;
};

struct TunedThresholds {
  TunedPort port;
  tune::ThresholdSolution solution;
  tune::SwitchSettings settings;
};

// Checks the options, finds the port and solves for its thresholds.
[[nodiscard]] Result<TunedThresholds> tune_thresholds(const ThresholdOptions& options);

}  // namespace thalweg::lab
