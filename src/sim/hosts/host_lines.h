// The lines of senders that wait to send, one line per host. Where a host's port has a limit, its
// senders take turns, one packet each, while less than that waits at the port (serve). So packets
// wait where they can still be called back, and senders share the host's link evenly. Where every
// sender has a limit of its own, those at their limit are in line (serve_all).
//
// Invariants:
// 1. An id is in a line at most once: whoever joins the line remembers that it has.
// 2. A host has at most one drained event to come, and has one whenever its line is not empty, its
//    port full and the host not paused. The owner of a paused host serves the line when the host
//    resumes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/units.h"
#include "sim/core/event_queue.h"
#include "sim/core/fabric.h"
#include "switch/queueing/ring.h"

namespace thalweg::sim {

class HostLines {
 public:
  // `drained` is the kind of event after which the caller must call on_drained(). Events and fabric
  // must outlive the lines.
  HostLines(EventKind drained, EventQueue& events, Fabric& fabric)
      : drained_(drained),
        events_(events),
        fabric_(fabric),
        lines_(static_cast<std::size_t>(fabric.host_count())) {}

  // Requires that the id is in no line.
  void join(Rank host, std::uint32_t id) { lines_[host.index()].ids.push(id); }

  // Gives turns as long as the port takes more. An id has its turn if fewer than `limit_of(id)`
  // bytes wait at the port; `send(id)` then sends a packet, if the id has one, and returns whether
  // the id stays in line.
  template <class LimitOf, class Send>
  void serve(Rank host, const LimitOf& limit_of, const Send& send) {
    Line& line = lines_[host.index()];
    while (!line.ids.empty()) {
      const std::uint32_t id = line.ids.front();
      const std::uint64_t waiting = fabric_.host_backlog(host);
      const std::uint64_t limit = limit_of(id);
      if (waiting >= limit) return watch(host, waiting - limit / 2);
      line.ids.pop();
      if (send(id)) line.ids.push(id);
    }
  }

  // The same for ids that have an order: `before(a, b)` says whether a has its turn before b. All
  // have the same limit, and `send(id)` may send several packets.
  template <class Before, class Send>
  void serve_in_order(Rank host, std::uint64_t limit, const Before& before, const Send& send) {
    Line& line = lines_[host.index()];
    while (!line.ids.empty()) {
      const std::uint64_t waiting = fabric_.host_backlog(host);
      if (waiting >= limit) return watch(host, waiting - limit / 2);
      std::uint32_t first = 0;
      for (std::uint32_t i = 1; i < line.ids.size(); ++i) {
        if (before(line.ids.at(i), line.ids.at(first))) first = i;
      }
      for (; first > 0; --first) {
        const std::uint32_t id = line.ids.front();
        line.ids.pop();
        line.ids.push(id);
      }
      const std::uint32_t id = line.ids.front();
      line.ids.pop();
      if (send(id)) line.ids.push(id);
    }
  }

  // Gives every id in line a turn: `fill(id)` sends what the id's own queue takes, and returns
  // whether the id stays in line. The next turns are when `bytes` have left the port.
  template <class Fill>
  void serve_all(Rank host, std::uint64_t bytes, const Fill& fill) {
    Line& line = lines_[host.index()];
    for (std::uint32_t left = line.ids.size(); left > 0; --left) {
      const std::uint32_t id = line.ids.front();
      line.ids.pop();
      if (fill(id)) line.ids.push(id);
    }
    if (!line.ids.empty()) watch(host, bytes);
  }

  // Makes a drained event for when `bytes` have left the port, unless one is to come.
  void watch(Rank host, std::uint64_t bytes) {
    Line& line = lines_[host.index()];
    const std::optional<Duration> time = fabric_.time_to_drain(host, bytes);
    if (line.watched || !time) return;
    line.watched = true;
    events_.push(events_.now_ps() + time->ps(), drained_, static_cast<std::uint32_t>(host.value()),
                 0, 0);
  }

  // A drained event has come: the caller must serve the line again.
  void on_drained(Rank host) { lines_[host.index()].watched = false; }

 private:
  struct Line {
    switches::Ring<std::uint32_t> ids;
    bool watched = false;  // a drained event is to come
  };

  EventKind drained_;
  EventQueue& events_;
  Fabric& fabric_;
  std::vector<Line> lines_;  // by host
};

}  // namespace thalweg::sim
