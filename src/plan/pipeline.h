// Finer chunks: while one part of a chunk is on its second hop, the next part is on its first.
#pragma once

#include "plan/plan.h"

namespace thalweg::plan {

// The same plan with every chunk cut into `parts` nearly equal chunks that take the same route, one
// after the other. Chunks with fewer elements than that are cut into single elements. Requires
// parts >= 1.
Plan pipelined(const Plan& plan, int parts);

}  // namespace thalweg::plan
