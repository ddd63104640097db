// Settings of switches that treat DLCP's packets as sections 3.2.2 and 4.2 of the paper want it:
// DSCP to queue, strict priority, and in each data queue a step of RED with ECN at its threshold,
// which drops what is not ECN-capable and marks the rest.
//
// Our queue 0 is served first. In SONiC, Cumulus Linux and Onyx the highest number is, so our
// queue q is theirs 7 − q. docs/operating.md says how to load each and for which versions it is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/units.h"

namespace thalweg {

struct QueueSetting {
  std::uint8_t priority = 1;  // our queue: 1 … kDataPriorities
  Bytes threshold;            // S_i
  Bytes limit;                // L_i
};

struct SwitchSettings {
  std::vector<QueueSetting> queues;
  Bytes port_buffer;
  std::string title;               // one line, for comments where a format has them
  std::vector<std::string> ports;  // names of the switch's own kind; not empty
};

// The `network:` section of a scenario (docs/scenario-format.md), which wants all data queues.
std::string to_scenario(const SwitchSettings& settings);
// A fragment of CONFIG_DB.
std::string to_sonic(const SwitchSettings& settings);
// NVUE commands.
std::string to_cumulus(const SwitchSettings& settings);
std::string to_onyx(const SwitchSettings& settings);

}  // namespace thalweg
