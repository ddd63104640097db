// The third stage of the switch pipeline decides whether a packet may enter its queue, and whether
// it is marked.
//
// All counts are of the bytes that wait when the packet arrives, without the packet itself.
//
// Marking (DCTCP): an ECN-capable packet is marked when the port, or its queue, holds more than K.
//
// Selective dropping (DLCP §3.2.2 and §4.2): each of the data queues 1 … 7 has a threshold S. When
// the queue holds more, packets that are not ECN-capable (the small gradients) are dropped and
// capable ones are marked. Front layers travel in the urgent queues, which have the lower
// thresholds, so they are dropped first. Section 4.2 computes the thresholds as T·(1 + (q−1)·d).
// Appendix B lists them one by one, with a limit L for each queue: when the queue holds more,
// everything is dropped. Queue 0 carries control messages and is exempt; a part of the port's
// buffer may be reserved for it, as switches reserve a minimum for each queue.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>

#include "base/units.h"
#include "switch/queueing/entry.h"

namespace thalweg::switches {

inline constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

// The rules of every port of a network. The default accepts everything and marks nothing.
class AdmissionPolicy {
 public:
  // Sets K, counted per port or per queue. A threshold of 0 turns marking off.
  void mark_above(Bytes threshold, bool per_port);
  // Sets T and d. A threshold of 0 turns selective dropping off. Requires threshold >= 0 and
  // step >= 0.
  void drop_selectively_above(Bytes threshold, double step);
  // These set S and L, one value for each of the queues 1, 2, …. Require kDataQueues values above
  // 0.
  void drop_selectively_above(std::span<const Bytes> thresholds);
  void limit_queues(std::span<const Bytes> limits);
  // Sets how many bytes of a port's limit only queue 0 may use. Requires bytes >= 0.
  void reserve_for_control(Bytes bytes);
  // S of a queue; kNoLimit if the queue drops nothing selectively.
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

}  // namespace thalweg::switches
