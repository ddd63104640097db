// Sets up the job of a communicator at the switches of a list: at one switch, or at the switches of
// several racks and that of the servers (net/atp/placement.h). Called by rank 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/atp/job_message.h"
#include "net/atp/leases.h"
#include "net/atp/switch_list.h"

namespace thalweg::net {

struct AtpLevelsOptions {
  std::vector<ListedSwitch> switches;  // empty: the job runs on its servers alone
  SwitchSecrets secrets;               // of all switches
  // The network (see atp_network()). Empty: it is not known, and there is one level, at the first
  // switch that answers.
  std::string topology;
  std::vector<std::string> hosts;    // the host of each rank in the topology
  std::string name;                  // of the job
  std::string key;                   // of its packets, as JobRequest::key; empty: they have no tag
  std::vector<std::string> members;  // "host:port" of each rank
  // The most servers; 0: as many as the placement allows.
  int servers = 0;
  std::uint32_t elements = 256;  // at most, in a packet
  std::uint32_t window = 1024;
};

struct AtpLevels {
  AtpJob job;
  // One for each switch of the job, which is over there when the connection closes.
  std::vector<AtpLease> leases;
  // What each switch said that has no room for the job, which goes on without it.
  std::vector<std::string> without_room;
  // The switches of the list that are not there or have no room.
  std::vector<ListedSwitch> missing;
};

// A switch that cannot be reached, does not answer or has no room is left out, as if it were not in
// the list. Any other refusal by a switch is an error that names it; nothing is left at the others.
[[nodiscard]] Result<AtpLevels> admit_at_levels(const AtpLevelsOptions& options, Time until);

// The same, but only at more switches than `held`. None: there are not as many.
[[nodiscard]] Result<std::optional<AtpLevels>> admit_at_more(const AtpLevelsOptions& options,
                                                             std::size_t held, Time until);

}  // namespace thalweg::net
