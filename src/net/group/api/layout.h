// Checks that all calls of a communicator make, and how a plan's chunks lie in the caller's memory.
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <cstdint>

#include <thalweg/result.h>

#include "net/group/api/plans.h"
#include "net/group/operation/planned_operation.h"

namespace thalweg::net {

inline Status check(const char* name, const void* data, std::int64_t elements) {
  if (elements < 0) return Error(fmt::format("{}: {} elements", name, elements));
  if (elements > 0 && data == nullptr) {
    return Error(fmt::format("{}: a tensor of {} elements without memory", name, elements));
  }
  return ok_status();
}

inline Status check_same_type(const char* name, DType in, DType out) {
  if (in == out) return ok_status();
  return Error(fmt::format("{}: the input is {}, the output {}", name, name_of(in), name_of(out)));
}

// Gives each buffer of the plan its memory: every chunk is at its offset in one tensor.
inline void lay_over(PlannedOperation& op, const PreparedPlan* plan, std::byte* tensor) {
  if (plan == nullptr) return;
  const auto element = static_cast<std::int64_t>(size_of(op.type));
  for (const exec::RankPlan::Buffer& buffer : plan->rank_plan.buffers()) {
    op.memory.push_back(tensor + plan->plan.chunks[buffer.chunk.index()].offset * element);
  }
}

inline std::size_t bytes_of(const PlannedOperation& op, std::int64_t elements) {
  return static_cast<std::size_t>(elements) * size_of(op.type);
}

}  // namespace thalweg::net
