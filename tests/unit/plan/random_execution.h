// An independent executor of plans, for tests, with real integers and a random network. It shares
// nothing with verify() but the meaning of a plan.
#pragma once

#include <string>

#include "base/prng.h"
#include "plan/plan.h"

namespace thalweg::plan {

// Sends, delivers and applies in an order drawn from `prng`, with several copies of the tensor's
// contributions as numbers. Returns what went wrong, or an empty text.
std::string execute_randomly(const Plan& plan, Prng& prng);

}  // namespace thalweg::plan
