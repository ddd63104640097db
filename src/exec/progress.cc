#include "exec/progress.h"

namespace thalweg::exec {

Progress::Progress(const RankPlan& plan, std::span<const std::uint32_t> segments) : plan_(&plan) {
  CHECK(segments.size() == plan.buffers().size());
  std::uint32_t next = 0;
  for (const std::uint32_t count : segments) {
    first_of_buffer_.push_back(next);
    next += count;
  }
  first_of_buffer_.push_back(next);
  version_.assign(next, 0);
  next = 0;
  for (const RankPlan::Arrival& arrival : plan.arrivals()) {
    const std::uint32_t count = segments[arrival.buffer];
    first_of_slot_.push_back(next);
    next += count;
    outstanding_.push_back(count);
    unapplied_.push_back(count);
    unapplied_in_all_ += count;
  }
  come_.assign(next, Come::kNot);
}

}  // namespace thalweg::exec
