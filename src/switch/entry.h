// What the stages of the switch pipeline pass on: a small plain description of a packet. The packet
// itself stays with the driver (a buffer of the software switch, a slot of the simulator's pool)
// and is named by a handle that the pipeline never looks into.
#pragma once

#include <cstdint>

namespace thalweg {

// Egress queues of a port. Queue 0 goes first.
inline constexpr std::uint32_t kQueuesPerPort = 8;
// Those for data: 1, 2, …. Queue 0 is for control.
inline constexpr std::uint32_t kDataQueues = kQueuesPerPort - 1;

struct QueueEntry {
  std::uint32_t handle = 0;  // the driver's own
  std::uint32_t size = 0;    // bytes of buffer
  std::uint32_t flow = 0;    // pFabric: packets of one flow leave in the order they came
  std::uint32_t rank = 0;    // pFabric: smaller goes first and is dropped last
  std::uint8_t queue = 0;    // below kQueuesPerPort
};

// What becomes of a packet at a port, and why.
enum class Verdict : std::uint8_t {
  kAccept,
  kAcceptMarked,   // and set congestion experienced
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

}  // namespace thalweg
