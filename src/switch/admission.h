// Third stage: may a packet enter its queue, and does it get marked?
//
// All counts are of what waits at the moment the packet arrives, the packet itself not included.
//
// Marking (DCTCP): an ECN-capable packet is marked when the port, or its queue, holds more than K.
//
// Selective dropping (DLCP §3.2.2 and §4.2): each of the data queues 1 … 7 has a threshold S. When
// the queue holds more, packets that are not ECN-capable (the small gradients) are dropped and
// capable ones marked. Front layers travel in the urgent queues and have the lower thresholds: they
// are dropped first. The thresholds of section 4.2 are T·(1 + (q−1)·d); those of appendix B come
// one by one, and with a limit L of each queue: when it holds more, everything is dropped. Queue
// 0 carries control and is exempt; a part of the port's buffer may be kept for it, as switches keep
// a minimum for each queue.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>

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
  // Of queues 1, 2, …, one each. Requires kDataQueues of them, above 0.
  void drop_selectively_above(std::span<const Bytes> thresholds);
  void limit_queues(std::span<const Bytes> limits);
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
    if (now.queue_bytes > limits_[queue]) return Verdict::kDropQueueFull;
    const std::uint64_t counted = mark_per_port_ ? now.port_bytes : now.queue_bytes;
    const bool mark = ecn_capable && (over || counted > mark_above_);
    return mark ? Verdict::kAcceptMarked : Verdict::kAccept;
  }

 private:
  using PerQueue = std::array<std::uint64_t, kQueuesPerPort>;
  static constexpr PerQueue unlimited() {
    PerQueue all{};
    all.fill(kNoLimit);
    return all;
  }
  static PerQueue of_data_queues(std::span<const Bytes> values);

  std::uint64_t mark_above_ = kNoLimit;
  bool mark_per_port_ = true;
  std::uint64_t reserve_ = 0;
  PerQueue selective_ = unlimited();
  PerQueue limits_ = unlimited();
};

}  // namespace thalweg
