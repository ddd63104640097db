// SegmentTag: how switches treat a segment (DLCP, section 3.2.2): in which queue it waits, and
// whether it may be dropped selectively there.
#pragma once

#include <cstdint>

namespace thalweg {

struct SegmentTag {
  std::uint8_t priority = 0;  // the queue, below kPriorityCount; 0 is served first
  bool important = true;      // ECN-capable: marked when others are dropped
  bool operator==(const SegmentTag&) const = default;
};
inline constexpr std::uint8_t kPriorityCount = 8;
// Queue 0 is for control messages (section 4.1); data uses the others.
inline constexpr std::uint8_t kControlPriority = 0;
inline constexpr std::uint8_t kDataPriorities = kPriorityCount - 1;

}  // namespace thalweg
