// HyStart as Linux's CUBIC has it (net/ipv4/tcp_cubic.c; Ha and Rhee, "Taming the elephants: new
// TCP slow start", 2011): says when slow start should end because the path is full, before a buffer
// is.
//
// It looks at the acknowledgements of each round, which ends with the first one beyond what had
// been sent when the round began:
// - Ack train: acknowledgements that follow each other closely have come for more than half the
//   least round trip. Then the window holds what the path holds one way.
// - Delay: the least of the round trips that the round's first acknowledgements measure is longer
//   than the least ever by an eighth, at least 4 ms and at most 16 ms. Then packets wait in a
//   queue.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace thalweg::sim {

class HyStart {
 public:
  struct Ack {
    Time now;
    Duration round_trip;         // as it measured it
    Duration smoothed;           // the smoothed round trip
    std::uint64_t acked = 0;     // every byte below has arrived
    std::uint64_t sent = 0;      // the end of what was sent
    double window = 0;           // bytes
    double window_segments = 0;  // the same in segments
  };

  // Takes an acknowledgement that moved the first missing byte during slow start. Returns whether
  // slow start should end, which it says once.
  bool on_ack(const Ack& ack) {
    if (found_) return false;
    found_ = is_full(ack);
    return found_;
  }
  // Forgets everything, after a timeout.
  void reset() { *this = HyStart(); }

 private:
  bool is_full(const Ack& ack);

  Duration least_;        // round trip ever; zero: none
  Duration round_least_;  // round trip in this round
  Time round_start_;
  Time last_of_train_;
  std::uint64_t round_end_ = 0;  // byte
  std::uint32_t samples_ = 0;    // in this round
  bool found_ = false;
};

}  // namespace thalweg::sim
