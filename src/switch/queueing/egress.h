// The fourth stage of the switch pipeline holds the packets that wait at one egress port, and
// decides which goes next.
//
// The driver asks AdmissionPolicy first, pushes the packets that it accepts, and pops when the line
// is free. Under pFabric a full port may still take a packet: make_room() picks another to drop.
#pragma once

#include <cstdint>

#include "switch/queueing/entry.h"
#include "switch/queueing/pfabric_queue.h"
#include "switch/queueing/priority_queues.h"

namespace thalweg::switches {

enum class Discipline : std::uint8_t {
  kFifo,            // one queue
  kStrictPriority,  // 8 queues, 0 first
  kPFabric,         // see pfabric_queue.h
};

class EgressQueues {
 public:
  explicit EgressQueues(Discipline discipline) : discipline_(discipline) {}

  [[nodiscard]] bool empty() const {
    return discipline_ == Discipline::kPFabric ? pfabric_.empty() : priorities_.empty();
  }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  // Bytes of the queue that a packet of class `queue` would join.
  [[nodiscard]] std::uint64_t queue_bytes(std::uint8_t queue) const {
    return discipline_ == Discipline::kStrictPriority ? priorities_.queue_bytes(queue) : bytes_;
  }

  void push(QueueEntry entry) {
    bytes_ += entry.size;
    if (discipline_ == Discipline::kPFabric) {
      pfabric_.push(entry);
      return;
    }
    if (discipline_ == Discipline::kFifo) entry.queue = 0;
    priorities_.push(entry);
  }
  // Requires a port that is not empty.
  QueueEntry pop() {
    const QueueEntry entry =
        discipline_ == Discipline::kPFabric ? pfabric_.pop() : priorities_.pop();
    bytes_ -= entry.size;
    return entry;
  }
  // Removes one packet that must make room for `arrival`, and returns it as `victim`; the driver
  // drops it, and calls again until there is room. Returns false if the arrival itself must be
  // dropped, which is always the case without pFabric.
  bool make_room(const QueueEntry& arrival, QueueEntry& victim) {
    if (discipline_ != Discipline::kPFabric) return false;
    if (!pfabric_.evict_worse_than(arrival.rank, victim)) return false;
    bytes_ -= victim.size;
    return true;
  }

 private:
  Discipline discipline_;
  std::uint64_t bytes_ = 0;
  PriorityQueues priorities_;
  PFabricQueue pfabric_;
};

}  // namespace thalweg::switches
