// Finer chunks: while one part of a chunk is on its second hop, the next is on its first.
#pragma once

#include "plan/plan.h"

namespace thalweg {

// The same plan with every chunk cut into `parts` nearly equal chunks that take the same way, one
// after the other. Chunks of fewer elements are cut into single elements. Requires parts >= 1.
Plan pipelined(const Plan& plan, int parts);

}  // namespace thalweg
