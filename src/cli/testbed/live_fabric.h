// The network of a testbed: the simulator's fabric, with real frames and driven by a real clock.
//
// Ports, queues, admission, marking, routes and loss are sim/fabric.h and src/switch, unchanged.
// This adds the bytes: a packet of the fabric's pool owns the frame at its place. No I/O and no
// clock: the caller says what time it is, and may be late. What happens then happens at the time it
// was due, so that a late caller delays frames but changes no rate.
//
// After send() and run(), ask next_event() again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"
#include "sim/event_queue.h"
#include "sim/fabric.h"
#include "sim/network.h"
#include "switch/classify.h"
#include "topology/topology.h"

namespace thalweg {

class LiveFabric {
 public:
  // Frames inside at a time. One more is dropped.
  static constexpr std::size_t kMaxFrames = 1 << 16;

  class Sink {
   public:
    virtual ~Sink() = default;
    // A frame has reached its host. Valid for the call.
    virtual void deliver(Rank host, std::span<const std::uint8_t> frame) = 0;
    // A frame has come over a link, or is about to be lost at its end.
    virtual void crossed(Time when, ArcId arc, std::span<const std::uint8_t> frame) = 0;
  };

  // How late frames reached their hosts, behind what the links say.
  struct Lateness {
    std::uint64_t frames = 0;
    std::uint64_t over_100us = 0;
    std::uint64_t over_1ms = 0;
    Duration most;
  };

  // `mtu`: of an IP packet. The topology must outlive the fabric.
  LiveFabric(const Topology& topology, const NetworkOptions& options, std::size_t mtu);

  // A host sends a frame. False: it is for no host, or longer than the MTU allows, or there is no
  // place for it; counted.
  bool send(Time now, Rank host, std::span<const std::uint8_t> frame);
  // All that happens until `now`, which never falls.
  void run(Time now, Sink& sink);
  [[nodiscard]] std::optional<Time> next_event() { return events_.next_time(); }

  [[nodiscard]] Fabric& fabric() { return fabric_; }
  [[nodiscard]] const NetworkCounters& counters() const { return counters_; }
  [[nodiscard]] std::uint64_t refused() const { return refused_; }
  [[nodiscard]] const Lateness& lateness() const { return lateness_; }
  [[nodiscard]] std::size_t frames_inside() const { return pool_.live(); }

 private:
  struct Held {
    std::unique_ptr<std::uint8_t[]> bytes;  // of the longest frame; made when first needed
    std::size_t size = 0;
  };
  void on_arrival(const Event& event, Time now, Sink& sink);
  [[nodiscard]] std::span<std::uint8_t> frame_at(std::uint32_t place) {
    return {frames_[place].bytes.get(), frames_[place].size};
  }

  EventQueue events_;
  NetworkCounters counters_;
  Fabric fabric_;
  PacketPool& pool_;  // of fabric_
  DscpClassifier classifier_;
  std::size_t longest_frame_;
  std::vector<Held> frames_;  // by place
  std::uint64_t refused_ = 0;
  Lateness lateness_;
};

}  // namespace thalweg
