// Third stage: may a packet enter its queue, and does it get marked?
//
// All counts are of what waits at the moment the packet arrives, the packet itself not included.
//
// Marking (DCTCP): an ECN-capable packet is marked when the port, or its queue, holds more than K.
//
// Selective dropping (DLCP §3.2.2 and §4.2): queue q of the data queues 1 … 7 has the threshold
// T·(1 + (q−1)·d). When the queue holds more, packets that are not ECN-capable (the small
// gradients) are dropped and capable ones marked. Front layers travel in the urgent queues and have
// the lower thresholds: they are dropped first. Queue 0 carries control and is exempt; a part of
// the port's buffer may be kept for it, as switches keep a minimum for each queue.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "base/units.h"
#include "switch/entry.h"

namespace thalweg {

inline constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

// The rules of every port of a network. The default accepts everything and marks nothing.
class AdmissionPolicy {
 public:
  // `threshold` 0: off.
  void mark_above(Bytes threshold, bool per_port);
  // Requires threshold >= 0 and step >= 0; threshold 0: off.
  void drop_selectively_above(Bytes threshold, double step);
  // Bytes of a port's limit that only queue 0 may use. Requires bytes >= 0.
  void reserve_for_control(Bytes bytes);
  // kNoLimit where nothing is dropped selectively.
  [[nodiscard]] std::uint64_t selective_threshold(std::uint8_t queue) const {
    return selective_[queue];
  }

  struct Occupancy {
    std::uint64_t port_bytes = 0;
    std::uint64_t queue_bytes = 0;
    std::uint64_t port_limit = kNoLimit;
  };
  [[nodiscard]] Verdict decide(const Occupancy& now, std::uint8_t queue, std::uint32_t size,
                               bool ecn_capable) const {
    const std::uint64_t kept = queue == 0 ? 0 : reserve_;
    if (now.port_bytes + size + kept > now.port_limit) return Verdict::kDropPortFull;
    const bool over = now.queue_bytes > selective_[queue];
    if (over && !ecn_capable) return Verdict::kDropSelective;
    const std::uint64_t counted = mark_per_port_ ? now.port_bytes : now.queue_bytes;
    const bool mark = ecn_capable && (over || counted > mark_above_);
    return mark ? Verdict::kAcceptMarked : Verdict::kAccept;
  }

 private:
  std::uint64_t mark_above_ = kNoLimit;
  bool mark_per_port_ = true;
  std::uint64_t reserve_ = 0;
  std::array<std::uint64_t, kQueuesPerPort> selective_ = no_thresholds();

  static constexpr std::array<std::uint64_t, kQueuesPerPort> no_thresholds() {
    std::array<std::uint64_t, kQueuesPerPort> all{};
    all.fill(kNoLimit);
    return all;
  }
};

}  // namespace thalweg
