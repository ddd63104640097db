// What switches may do with a segment (DLCP, section 3.2.2): which queue it waits in, and whether
// it may be dropped selectively there.
#pragma once

#include <cstdint>

namespace thalweg {

struct SegmentTag {
  std::uint8_t priority = 0;  // queue, 0 first; below kPriorityCount
  bool important = true;      // ECN-capable: marked where others are dropped
  bool operator==(const SegmentTag&) const = default;
};
inline constexpr std::uint8_t kPriorityCount = 8;
// Queue 0 is for control messages (section 4.1); data has the others.
inline constexpr std::uint8_t kControlPriority = 0;
inline constexpr std::uint8_t kDataPriorities = kPriorityCount - 1;

}  // namespace thalweg
