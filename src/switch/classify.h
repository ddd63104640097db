// First stage: which egress queue a packet belongs to.
#pragma once

#include <array>
#include <cstdint>

#include "switch/entry.h"

namespace thalweg {

// Maps the DSCP field of IP to a queue, as the DSCP table of a commodity switch does.
class DscpClassifier {
 public:
  static constexpr std::uint32_t kDscpValues = 64;

  // Class selectors: CS7 (56–63) is queue 0, CS6 queue 1, …, best effort (0–7) queue 7.
  DscpClassifier();

  // Requires dscp < kDscpValues and queue < kQueuesPerPort.
  void map(std::uint8_t dscp, std::uint8_t queue);
  // The lower six bits of `dscp` count.
  [[nodiscard]] std::uint8_t queue_of(std::uint8_t dscp) const {
    return queues_[dscp & (kDscpValues - 1)];
  }

 private:
  std::array<std::uint8_t, kDscpValues> queues_{};
};

// For a driver whose packets carry the queue's number itself: what is too large is least urgent.
constexpr std::uint8_t queue_of_priority(std::uint8_t priority) {
  return priority < kQueuesPerPort ? priority : kQueuesPerPort - 1;
}

}  // namespace thalweg
