// Measures the network between the ranks of a communicator: round trips and rates over TCP.
//
// In n − 1 rounds (n rounds if n is odd) every rank meets every other; all pairs of a round measure
// at the same time. A round has three parts with barriers between them: small messages back and
// forth, data in one direction, data in the other. Pairs that share links therefore slow each other
// down, as they would in a collective.
#pragma once

#include <vector>

#include <thalweg/communicator.h>
#include <thalweg/result.h>

#include "base/units.h"
#include "topology/probe.h"

namespace thalweg::net {

struct ProbeOptions {
  Duration each = Duration::milliseconds(100);      // approximate time to measure one rate
  int pings = 32;                                   // round trips per pair; the shortest counts
  Duration limit = Duration::milliseconds(30'000);  // longest wait in one part of a round
};

// The partner of `rank` in this round, of a job with `ranks` ranks; -1 if it has none.
[[nodiscard]] int probe_partner(int ranks, int rank, int round);
[[nodiscard]] int probe_rounds(int ranks);

// Every rank must call it; each gets the samples of all ranks.
[[nodiscard]] Result<std::vector<topology::ProbeSample>> probe_network(const Communicator& all,
                                                                       const ProbeOptions& options);

}  // namespace thalweg::net
