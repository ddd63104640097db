// Every packet alive in the simulator, in one array, named by its index in it ("place").
//
// A place carries a stamp. An event that moves a packet carries the stamp that the place had when
// the event was scheduled; whoever takes a packet off its course (drops it, or puts it back into a
// queue) changes the stamp, which makes the event void. A place that is used again keeps its stamp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/core/packet.h"

namespace thalweg::sim {

struct alignas(64) PooledPacket : Packet {
  bool live = false;
  std::uint16_t stamp = 0;
  std::uint32_t next_free = 0;
};
static_assert(sizeof(PooledPacket) == 64, "a packet is one cache line");

class PacketPool {
 public:
  // References are invalid after the next allocate().
  PooledPacket& operator[](std::uint32_t place) { return packets_[place]; }
  const PooledPacket& operator[](std::uint32_t place) const { return packets_[place]; }
  [[nodiscard]] const std::vector<PooledPacket>& places() const { return packets_; }
  [[nodiscard]] std::size_t live() const { return live_; }
  // The most packets that were alive at once.
  [[nodiscard]] std::size_t peak() const { return packets_.size(); }

  // Returns a place whose fields still hold what its last user left.
  std::uint32_t allocate() {
    ++live_;
    std::uint32_t place = free_;
    if (place != kNone) [[likely]] {
      free_ = packets_[place].next_free;
    } else {
      place = static_cast<std::uint32_t>(packets_.size());
      packets_.emplace_back();
    }
    packets_[place].live = true;
    return place;
  }
  void release(std::uint32_t place) {
    PooledPacket& packet = packets_[place];
    packet.live = false;
    packet.next_free = free_;
    free_ = place;
    --live_;
  }
  void prefetch(std::uint32_t place) const { __builtin_prefetch(&packets_[place]); }

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  std::vector<PooledPacket> packets_;
  std::uint32_t free_ = kNone;
  std::size_t live_ = 0;
};

}  // namespace thalweg::sim
