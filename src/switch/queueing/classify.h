// The first stage of the switch pipeline decides to which egress queue a packet belongs.
#pragma once

#include <array>
#include <cstdint>

#include "switch/queueing/entry.h"

namespace thalweg::switches {

// Maps the DSCP field of IP to a queue, as the DSCP table of a commodity switch does.
class DscpClassifier {
 public:
  static constexpr std::uint32_t kDscpValues = 64;

  // Class selectors: CS7 (56–63) is queue 0, CS6 queue 1, …, best effort (0–7) queue 7.
  DscpClassifier();

  // Requires dscp < kDscpValues and queue < kQueuesPerPort.
  void map(std::uint8_t dscp, std::uint8_t queue);
  // Ignores all but the lower six bits of `dscp`.
  [[nodiscard]] std::uint8_t queue_of(std::uint8_t dscp) const {
    return queues_[dscp & (kDscpValues - 1)];
  }

 private:
  std::array<std::uint8_t, kDscpValues> queues_{};
};

// For a driver whose packets carry the queue's number: a number that is too large becomes the least
// urgent queue.
constexpr std::uint8_t queue_of_priority(std::uint8_t priority) {
  return priority < kQueuesPerPort ? priority : kQueuesPerPort - 1;
}

}  // namespace thalweg::switches
