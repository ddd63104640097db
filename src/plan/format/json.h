// Plans as JSON text, in and out. docs/plan-format.md is the grammar.
#pragma once

#include <string>
#include <string_view>

#include "plan/plan.h"

namespace thalweg::plan {

inline constexpr std::string_view kPlanFormatName = "thalweg-plan";
inline constexpr int kPlanFormatVersion = 1;

// Writes one chunk and one transfer per line, with keys in a fixed order: equal plans give equal
// text, and a difference between two plans reads well as a diff.
std::string plan_to_json(const Plan& plan);

// The inverse. Every error names `source`, the place in the document ("transfers[12].after"), what
// is there and what is allowed. A plan that is returned has passed check_shape().
Result<Plan> plan_from_json(std::string_view text, std::string_view source);

}  // namespace thalweg::plan
