// How the ranks of a CollNet communicator meet: all connect to the listener of rank 0, which asks a
// switch to admit their ATP job and tells them about it. Unlike connections of the net plugin this
// waits, since NCCL calls connect() once.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "nccl/coll_line.h"
#include "nccl/rendezvous.h"
#include "nccl/settings.h"
#include "net/atp/leases.h"
#include "net/atp/node.h"

namespace thalweg::nccl {

struct CollMeeting {
  int rank = 0;
  int ranks = 1;
  const Settings* settings = nullptr;
  const CollSettings* switches = nullptr;
  const Device* device = nullptr;  // whose address the ATP node uses
  Listener* listener = nullptr;    // of this rank; rank 0 needs it
  Handle rank0;
};

// What the ranks have when they have met.
struct CollParts {
  int rank = 0;
  int ranks = 1;
  std::unique_ptr<net::AtpNode> node;      // has joined the job
  std::unique_ptr<net::AtpLeases> leases;  // of rank 0
  // To the other ranks, by rank; of a rank above 0: to rank 0 only. The others are closed.
  std::vector<CollLine> lines;
  std::string about;               // the job, for the log
  std::vector<CollMessage> early;  // of rank 0, which came together with the job
};

// Returns within the settings' timeout, and a few seconds for the switch. If no switch admits the
// job, every rank gets an error: NCCL then sums by other ways.
[[nodiscard]] Result<CollParts> meet(const CollMeeting& meeting);

}  // namespace thalweg::nccl
