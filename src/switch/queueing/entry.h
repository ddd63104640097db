// The types that the stages of the switch pipeline pass on: a small plain description of a packet,
// and what happens to it. The driver keeps the packet itself (in a buffer of the software switch,
// or in the simulator's pool) and names it by a handle that the pipeline does not interpret.
#pragma once

#include <cstdint>

namespace thalweg::switches {

// The number of egress queues per port. Queue 0 is served first.
inline constexpr std::uint32_t kQueuesPerPort = 8;
// The number of queues for data: 1, 2, …. Queue 0 is for control.
inline constexpr std::uint32_t kDataQueues = kQueuesPerPort - 1;

struct QueueEntry {
  std::uint32_t handle = 0;  // the driver's name for the packet
  std::uint32_t size = 0;    // bytes of buffer
  std::uint32_t flow = 0;    // pFabric: packets of one flow leave in the order of their arrival
  std::uint32_t rank = 0;    // pFabric: the smallest goes first and is dropped last
  std::uint8_t queue = 0;    // below kQueuesPerPort
};

// What happens to a packet at a port, and why.
enum class Verdict : std::uint8_t {
  kAccept,
  kAcceptMarked,   // accept, and set "congestion experienced"
  kDropPortFull,   // the port's buffer is full
  kDropQueueFull,  // the queue holds more than its own limit
  kDropShared,     // the switch's shared buffer is full
  kDropSelective,  // DLCP: over the queue's threshold and not ECN-capable
};

constexpr bool accepted(Verdict verdict) {
  return verdict == Verdict::kAccept || verdict == Verdict::kAcceptMarked;
}

constexpr const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kAccept:
      return "accept";
    case Verdict::kAcceptMarked:
      return "accept-marked";
    case Verdict::kDropPortFull:
      return "drop-port-full";
    case Verdict::kDropQueueFull:
      return "drop-queue-full";
    case Verdict::kDropShared:
      return "drop-shared-full";
    case Verdict::kDropSelective:
      return "drop-selective";
  }
  return "?";
}

}  // namespace thalweg::switches
