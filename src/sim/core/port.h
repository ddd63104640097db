// The state of one egress port: the transmitter at the start of an arc and the packets that wait
// for it.
//
// The departure of a packet that joins a first-in-first-out line is known when it joins, so its
// arrival at the next node is scheduled then, and a hop costs one event under any load. A port
// works like this ("committed") as long as all waiting packets are of one class. When a packet
// comes that might overtake, or when something changes the future (a new rate, a pause), the
// waiting packets' arrivals are voided and the packets put into the egress queues. Until those are
// empty again the port picks its next packet each time the transmitter is free ("scheduled"), at
// the cost of a second event.
//
// Invariants:
// 1. Committed: queues are empty or absent; `line` holds the packets whose transmission has not
//    begun, in order, each with its start; retire() brings that up to date.
// 2. Scheduled: `line` is empty; the queues are not empty or the port is blocked; unless blocked
//    there is one valid kPortFree event, at free_at or now.
// 3. A port that counts sockets is never committed.
// 4. waiting_bytes is the sum over `line` or the queues. A packet being transmitted does not count.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "base/units.h"
#include "switch/queueing/admission.h"
#include "switch/queueing/egress.h"
#include "switch/queueing/ring.h"

namespace thalweg::sim {

struct Port {
  struct Waiting {
    std::int64_t start_ps = 0;
    std::uint32_t packet = 0;
    std::uint32_t size = 0;
  };

  std::int64_t free_at_ps = 0;  // when the transmitter is free
  std::int64_t delay_ps = 0;
  std::uint64_t waiting_bytes = 0;
  switches::Ring<Waiting> line;
  std::uint32_t ps_per_byte = 0;  // 0: not a whole number, use `rate`
  std::uint16_t stamp = 0;        // of the valid kPortFree event
  std::uint8_t line_class = 0;    // committed: the queue of all packets in `line`
  bool scheduled = false;
  bool blocked = false;  // its host is paused
  bool down = false;
  bool lossy = false;
  bool leaves_shard = false;  // the node at the end of the arc belongs to another shard
  bool from_host = false;
  bool counts_sockets = false;  // of a host: the bytes of every socket that wait here are counted
  switches::Discipline discipline = switches::Discipline::kFifo;

  std::unique_ptr<switches::EgressQueues> queues;  // made when first needed
  std::uint64_t limit = switches::kNoLimit;        // bytes that may wait
  std::uint64_t peak_bytes = 0;                    // since the last Fabric::take_queue_peak()
  std::uint64_t earlier_peak_bytes = 0;            // before that call
  std::uint64_t drops = 0;  // of packets that waited here, came here or left from here
  Bandwidth rate;
  std::int32_t to_rank = -1;  // the host at the end of the arc; -1: a switch
  std::uint32_t to_node = 0;
  std::uint32_t from_node = 0;

  void set_rate(Bandwidth new_rate) {
    constexpr std::int64_t kBitsPicoseconds = 8'000'000'000'000;
    rate = new_rate;
    const bool whole = kBitsPicoseconds % rate.bps() == 0 &&
                       kBitsPicoseconds / rate.bps() <= std::int64_t{0xffffffff};
    ps_per_byte = whole ? static_cast<std::uint32_t>(kBitsPicoseconds / rate.bps()) : 0;
  }
  [[nodiscard]] std::uint64_t highest_bytes() const {
    return std::max(peak_bytes, earlier_peak_bytes);
  }
  // How long transmitting that many bytes takes; exact, rounded up to a picosecond.
  [[nodiscard]] std::int64_t transmission_ps(std::uint32_t bytes) const {
    if (ps_per_byte != 0) [[likely]]
      return std::int64_t{ps_per_byte} * bytes;
    return rate.transmission_time(Bytes(bytes)).ps();
  }
};

}  // namespace thalweg::sim
