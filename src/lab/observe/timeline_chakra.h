// Timelines of real jobs (THALWEG_TIMELINE, net/job/timeline.h) as Chakra execution traces.
//
// Every collective of the rank becomes a COMM_COLL_NODE with its bytes and times. What the rank did
// before a call, as far as its communicators know it, becomes a COMP_NODE:
//
// 1. If all earlier calls were over, the program may have waited for them. The node lasts from the
//    end of the last of them to the call, and depends on all of them.
// 2. Otherwise the program computed on while they ran. The node lasts from the call before to this
//    one, and depends on the node before that call.
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
  std::size_t left_out = 0;  // messages between two ranks, and calls that failed
};

[[nodiscard]] Result<ChakraTimeline> chakra_of_timeline(const TimelineFile& file);

}  // namespace thalweg::lab
