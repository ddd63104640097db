// Plans as MSCCL XML, for the runtimes that read it (msccl, msccl-executor-nccl, RCCL).
//
// In MSCCL every rank is a GPU that runs thread blocks. A thread block is a list of steps run one
// after the other, with one peer that it sends to and one that it receives from. A step may wait
// until a step of another thread block of the same GPU is done (depid, deps). A `nop` step only
// waits; a step that must wait for several has nops before it.
//
// How a plan maps onto this:
// - A rank has one thread block for each peer it sends to and one for each it receives from, and
//   one for local copies if it needs any. A transfer is an `s` step in the sending block and an `r`
//   (copy) or `rrc` (reduce) step in the receiving one, both in the order of the plan.
// - Version 0 of a buffer lies in the rank's input; later versions lie in its output if it needs
//   the chunk, else in scratch. A rank that needs a chunk it has from the start copies it (`cpy`).
// - A send of version v waits for arrival v. Arrival v waits for arrival v−1 and for all sends of
//   version v−1. So the program is right in place (input and output in the same memory) as well as
//   out of place; all-to-all is out of place only.
//
// MSCCL cuts every tensor into equal chunks and does not run on a size that does not divide, so
// chunks whose lengths differ by one element count as equal. Other chunks are written if all their
// lengths are small multiples of one length.
#pragma once

#include <string>

#include "plan/plan.h"

namespace thalweg::plan {

// Requires a verified plan. An error says why MSCCL cannot express the plan: it is a mix, has ranks
// that do not contribute, chunks that are not (multiples of) equal parts, or an order of steps in
// which the thread blocks would wait for one another forever.
Result<std::string> plan_to_msccl_xml(const Plan& plan);

}  // namespace thalweg::plan
