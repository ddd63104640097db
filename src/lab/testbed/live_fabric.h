// The network of a testbed: the simulator's fabric with real frames, in real time.
//
// Ports, queues, admission, marking, routes and loss are those of sim/core/fabric.h and src/switch,
// unchanged. This class adds the bytes: frame i belongs to packet i of the fabric's pool. It does
// no I/O and has no clock: the caller says what time it is, and may be late. Events then still
// happen at the time they were due, so a late caller delays frames but changes no rate.
//
// After send() and run(), ask next_event() again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"
#include "sim/core/event_queue.h"
#include "sim/core/fabric.h"
#include "sim/core/network.h"
#include "switch/queueing/classify.h"
#include "topology/topology.h"

namespace thalweg::lab {

class LiveFabric {
 public:
  // The most frames inside at a time. Further ones are dropped.
  static constexpr std::size_t kMaxFrames = 1 << 16;

  class Sink {
   public:
    virtual ~Sink() = default;
    // A frame has reached its host. `frame` is valid during the call.
    virtual void deliver(Rank host, std::span<const std::uint8_t> frame) = 0;
    // A frame has crossed a link. It may still be lost at the link's end.
    virtual void crossed(Time when, topology::ArcId arc, std::span<const std::uint8_t> frame) = 0;
  };

  // How much later frames reached their hosts than the fabric's time says.
  struct Lateness {
    std::uint64_t frames = 0;
    std::uint64_t over_100us = 0;
    std::uint64_t over_1ms = 0;
    Duration most;
  };

  // `mtu`: the most bytes of an IP packet. The topology must outlive this object.
  LiveFabric(const topology::Topology& topology, const sim::NetworkOptions& options,
             std::size_t mtu);

  // A host sends a frame. Returns false, and counts it in refused(), if the frame is for no other
  // host, is longer than the MTU allows, or finds kMaxFrames inside.
  bool send(Time now, Rank host, std::span<const std::uint8_t> frame);
  // Does everything that is due by `now`, which must never decrease.
  void run(Time now, Sink& sink);
  [[nodiscard]] std::optional<Time> next_event() { return events_.next_time(); }

  [[nodiscard]] sim::Fabric& fabric() { return fabric_; }
  [[nodiscard]] const sim::NetworkCounters& counters() const { return counters_; }
  [[nodiscard]] std::uint64_t refused() const { return refused_; }
  [[nodiscard]] const Lateness& lateness() const { return lateness_; }
  [[nodiscard]] std::size_t frames_inside() const { return pool_.live(); }

 private:
  struct Held {
    std::unique_ptr<std::uint8_t[]> bytes;  // room for the longest frame; made when first needed
    std::size_t size = 0;
  };
  void on_arrival(const sim::Event& event, Time now, Sink& sink);
  [[nodiscard]] std::span<std::uint8_t> frame_at(std::uint32_t place) {
    return {frames_[place].bytes.get(), frames_[place].size};
  }

  sim::EventQueue events_;
  sim::NetworkCounters counters_;
  sim::Fabric fabric_;
  sim::PacketPool& pool_;  // of fabric_
  switches::DscpClassifier classifier_;
  std::size_t longest_frame_;
  std::vector<Held> frames_;  // by place in pool_
  std::uint64_t refused_ = 0;
  Lateness lateness_;
};

}  // namespace thalweg::lab
