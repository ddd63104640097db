// Timelines of real jobs (THALWEG_TIMELINE, net/job/timeline.h) as Chakra execution traces.
//
// Every collective of the rank becomes a COMM_COLL_NODE with its bytes and times. What the rank did
// before a call, as far as its communicators know it, becomes a COMP_NODE:
//
// 1. If an iteration ended since the call before (an optimizer used the gradients), the program has
//    waited for all calls that were over by then. The node lasts from the end of the last of them
//    to the call, and depends on all of them.
// 2. If not, and the timeline has iterations, the program computed on while earlier calls ran. The
//    node lasts from the call before to this one, and depends on the node before that call.
// 3. A timeline without iterations says nothing of what a program waited for. If all earlier calls
//    were over, rule 1 holds, otherwise rule 2.
#pragma once

#include <cstddef>

#include <thalweg/result.h>

#include "lab/observe/timeline_merge.h"
#include "trace/chakra.h"

namespace thalweg::lab {

struct ChakraTimeline {
  int rank = 0;
  trace::ChakraTrace trace;
  std::size_t calls = 0;
  std::size_t iterations = 0;
  std::size_t left_out = 0;  // messages between two ranks, and calls that failed
};

[[nodiscard]] Result<ChakraTimeline> chakra_of_timeline(const TimelineFile& file);

}  // namespace thalweg::lab
