// Measures the network between the ranks of a communicator: round trips and rates over TCP.
//
// In n − 1 rounds (n, if n is odd) every rank meets every other, all pairs of a round at the same
// time. A round has three parts, with barriers between: small messages to and fro, data one way,
// data the other. So rates include what pairs take from each other on links they share, which is
// what a collective will meet.
#pragma once

#include <vector>

#include <thalweg/communicator.h>
#include <thalweg/result.h>

#include "base/units.h"
#include "topology/probe.h"

namespace thalweg {

struct ProbeOptions {
  Duration each = Duration::milliseconds(100);      // how long one rate is measured, about
  int pings = 32;                                   // the shortest counts
  Duration limit = Duration::milliseconds(30'000);  // of one part of a round
};

// The partner of `rank` among `ranks` in this round; -1: none.
[[nodiscard]] int probe_partner(int ranks, int rank, int round);
[[nodiscard]] int probe_rounds(int ranks);

// Every rank calls it, and gets the samples of all.
[[nodiscard]] Result<std::vector<ProbeSample>> probe_network(const Communicator& all,
                                                             const ProbeOptions& options);

}  // namespace thalweg
