// Eight first-in-first-out queues under strict priority: the lowest-numbered queue that is not
// empty is served.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "switch/queueing/entry.h"
#include "switch/queueing/ring.h"

namespace thalweg::switches {

class PriorityQueues {
 public:
  [[nodiscard]] bool empty() const { return waiting_ == 0; }
  [[nodiscard]] std::uint64_t queue_bytes(std::uint8_t queue) const { return bytes_[queue]; }

  // Requires entry.queue < kQueuesPerPort.
  void push(const QueueEntry& entry) {
    queues_[entry.queue].push(entry);
    bytes_[entry.queue] += entry.size;
    waiting_ |= 1U << entry.queue;
  }
  // Requires that not all queues are empty.
  QueueEntry pop() {
    const auto queue = static_cast<std::uint8_t>(std::countr_zero(waiting_));
    const QueueEntry entry = queues_[queue].front();
    queues_[queue].pop();
    bytes_[queue] -= entry.size;
    if (queues_[queue].empty()) waiting_ &= waiting_ - 1;
    return entry;
  }

 private:
  std::array<Ring<QueueEntry>, kQueuesPerPort> queues_;
  std::array<std::uint64_t, kQueuesPerPort> bytes_{};
  std::uint32_t waiting_ = 0;  // bit q: queue q is not empty
};

}  // namespace thalweg::switches
