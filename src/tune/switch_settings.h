// Settings for switches that treat DLCP's packets as sections 3.2.2 and 4.2 of the paper require:
// DSCP selects the queue, queues have strict priority, and each data queue has a RED step with ECN
// at its threshold, which drops packets that are not ECN-capable and marks the rest.
//
// Our queue 0 is served first. In SONiC, Cumulus Linux and Onyx the highest number is served first,
// so our queue q is their queue 7 − q. docs/operating.md says how to load each file and which
// versions it is for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/units.h"

namespace thalweg::tune {

struct QueueSetting {
  std::uint8_t priority = 1;  // our queue: 1 … kDataPriorities
  Bytes threshold;            // S_i
  Bytes limit;                // L_i
};

struct SwitchSettings {
  std::vector<QueueSetting> queues;
  Bytes port_buffer;
  std::string title;               // one line, for comments in formats that have them
  std::vector<std::string> ports;  // port names in the switch's own form; not empty
};

// The `network:` section of a scenario (docs/scenario-format.md). Requires all data queues.
std::string to_scenario(const SwitchSettings& settings);
// A fragment of CONFIG_DB.
std::string to_sonic(const SwitchSettings& settings);
// NVUE commands.
std::string to_cumulus(const SwitchSettings& settings);
std::string to_onyx(const SwitchSettings& settings);

}  // namespace thalweg::tune
