// AtpPlacement: where the gradients of a communicator's job are summed, and in which order its
// ranks take part. It is found from the network and the switches that answer
// (topology/aggregation_groups.h); no I/O.
//
// Two levels: the ranks of each rack whose switch aggregates are a group, and that switch sums
// them; more than 32 ranks of a rack are several groups. All servers are in one rack; its switch is
// also the second level, which sums the groups. A rank behind a switch that does not aggregate
// sends to the second level. It is a group of its own, or several are one where groups run out. One
// switch for all ranks is both levels if there are more than 32.
//
// The servers' rack is the one that takes the least time: one sum of every other group arrives over
// its uplinks, and one result for each leaves, while any other rack sends one sum and receives one
// result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "net/atp/switch_list.h"
#include "topology/topology.h"

namespace thalweg::net {

struct AtpPlacement {
  // The communicator's rank of each rank of the job. Servers come first, then the other ranks of
  // their rack, then the other groups.
  std::vector<int> order;
  // The ranks of each group, in that order.
  std::vector<std::uint8_t> groups;
  // The switch of each group, as an index of the list: of the first level, or for ranks behind a
  // switch that does not aggregate, of the second.
  std::vector<std::size_t> switches;
  // The switch that the servers are at. It is the second level if there are two.
  std::size_t top = 0;
  // The first ranks of the job that may be servers.
  int most_servers = 1;
  // Several shortest paths lead from some group's switch to the servers' one.
  bool several_paths = false;

  // The job has a second level, at `top`.
  [[nodiscard]] bool two_levels() const { return groups.size() > 1; }
};

// The network of a communicator.
struct AtpNetwork {
  topology::Topology topology;
  std::vector<Rank> hosts;  // [rank of the communicator]: its host
};

// Reads a topology: a shorthand, the path of a file, or the text of a YAML file. `hosts` has for
// each rank the name or the number of its host; or "rank/ranks" of a job whose hosts are in the
// order of the ranks: one for each rank or, if there are fewer, as many ranks on each.
[[nodiscard]] Result<AtpNetwork> atp_network(const std::string& topology,
                                             const std::vector<std::string>& hosts);

// Finds the switches of the list in the network, or the hosts that they run on: an error names one
// that is not there.
[[nodiscard]] Result<std::vector<topology::NodeId>> nodes_of(const std::vector<ListedSwitch>& list,
                                                             const topology::Topology& topology);

// `nodes`: the switches of the list in the network. `present`: which of them answer; at least one.
// Without a network, or if fewer than two of them have ranks to sum, all ranks are at one switch.
// An error if the groups, at most 32 of 32, cannot hold the ranks.
[[nodiscard]] Result<AtpPlacement> place_atp_job(const AtpNetwork* network, int ranks,
                                                 const std::vector<topology::NodeId>& nodes,
                                                 const std::vector<bool>& present);

}  // namespace thalweg::net
