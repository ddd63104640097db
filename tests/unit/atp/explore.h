// Every behaviour of a small ATP world, by exhaustive search.
//
// The network keeps every packet that was ever sent, and may deliver any of them at any time, any
// number of times: that is loss (never delivered), delay and reordering without bound, and
// duplication without bound. A worker's timeout may come at any time, so its retransmissions are
// sent as soon as the gradient is. A switch may lose its table at any time (restart), and any one
// slot (lifetime).
//
// A state is what switches, servers and workers hold, and the set of packets sent. Of two states
// that differ in the set alone, where one set is within the other, the larger can do all that the
// smaller can: only that one is searched.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>

#include "atp/world.h"

namespace thalweg::atp_test {

struct Exploration {
  Shape shape;
  std::int64_t blocks = 1;      // sequences of each job
  bool add_duplicates = false;  // World::add_duplicates
  std::uint64_t most_states = 20'000'000;
};

struct ExplorationReport {
  std::uint64_t states = 0;    // of switches, servers and workers
  std::uint64_t searched = 0;  // with the packets sent
  std::uint64_t transitions = 0;
  std::uint64_t packets = 0;   // different ones
  std::uint64_t finished = 0;  // states in which every worker has all sums
  // What switches and servers were made to do, by cause.
  std::bitset<kAggregateCauseCount> at_switches;
  std::bitset<kAtpServerCauseCount> at_servers;
  std::uint64_t stale_slots = 0;  // states of these in which a late packet holds a slot
  std::string violation;          // empty: every state is safe and completion always reachable
};

// In every state: what travels is the sum of exactly the contributions its header names, and what a
// worker gets is the sum of all. From every state, with everything that is on its way lost, the
// workers' retransmissions complete every job. With every job complete, slots that late packets
// hold are freed by their lifetime, and none is left.
ExplorationReport explore(const Exploration& exploration);

}  // namespace thalweg::atp_test
