// Explores every behaviour of a small ATP world by exhaustive search.
//
// The network keeps every packet that was ever sent, and may deliver any of them at any time, any
// number of times. This covers loss (a packet is never delivered), and unbounded delay, reordering
// and duplication. A worker's timeout may pass at any time, so its retransmissions are sent as soon
// as the gradient is. A switch may lose its table at any time (restart), or any one slot
// (lifetime). In some worlds faults change what packets and switches hold, a limited number of
// times; check words stay as they were.
//
// A state is what switches, servers and workers hold, and the set of packets sent. If two states
// differ only in that set, and one set includes the other, then the state with the larger set can
// do all that the other can, and only that state is searched.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>

#include "atp/world.h"

namespace thalweg::proto::atp_test {

struct Exploration {
  Shape shape;
  std::int64_t blocks = 1;      // sequences of each tensor
  int tensors = 1;              // of each job, all started at the beginning
  bool add_duplicates = false;  // World::add_duplicates
  // How many times in a run a fault changes what one packet or one slot of a switch holds, and
  // where faults happen.
  int faults = 0;
  enum class Fault : std::uint8_t { kContribution, kSum, kSlot } fault = Fault::kContribution;
  bool trusting = false;  // World::trusting
  std::uint64_t most_states = 20'000'000;
};

struct ExplorationReport {
  std::uint64_t states = 0;    // different states of switches, servers and workers
  std::uint64_t searched = 0;  // states that also differ in the packets sent
  std::uint64_t transitions = 0;
  std::uint64_t packets = 0;   // different packets
  std::uint64_t finished = 0;  // states in which every worker has all sums
  // The causes that occurred at switches and servers.
  std::bitset<switches::kAggregateCauseCount> at_switches;
  std::bitset<kAtpServerCauseCount> at_servers;
  std::uint64_t repeated = 0;     // the most sums in one run that had to be repeated, over workers
  std::uint64_t stale_slots = 0;  // finished states in which a late packet holds a slot
  std::string violation;          // empty: every state is safe and completion always reachable
};

// Checks that in every state, each packet carries the sum of exactly the contributions its header
// names, and a worker gets the sum of all contributions; that all workers use the sum with the same
// exponent, and that it fits, where workers choose exponents. A packet that a fault has changed
// must show it by its check word. Checks that from every state, after all packets in flight are
// lost, the workers' retransmissions complete every job, and that no worker fails. Checks that when
// every job is complete, the lifetime frees the slots that late packets hold, and none is left.
ExplorationReport explore(const Exploration& exploration);

}  // namespace thalweg::proto::atp_test
