// Who waits to send, host by host. A host's senders take turns, a packet each, while less than a
// limit waits at the host's port; so what they have waits where it can still be called back, and
// they share the host's link evenly.
//
// Invariants:
// 1. An id is in a line at most once: whoever joins it remembers that it has.
// 2. A host has at most one drained event to come, and has one whenever its line is not empty, its
//    port full and the host not paused. A paused host's owner serves the line when it goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/units.h"
#include "sim/event_queue.h"
#include "sim/fabric.h"
#include "switch/ring.h"

namespace thalweg {

class HostLines {
 public:
  // `drained`: the kind of event after which on_drained() is to be called. Events and fabric must
  // outlive the lines.
  HostLines(EventKind drained, EventQueue& events, Fabric& fabric)
      : drained_(drained),
        events_(events),
        fabric_(fabric),
        lines_(static_cast<std::size_t>(fabric.host_count())) {}

  // Requires that the id is in no line.
  void join(Rank host, std::uint32_t id) { lines_[host.index()].ids.push(id); }

  // Gives turns as long as the port takes more: `limit_of(id)` bytes may wait there before the id's
  // turn, and `send(id)` sends a packet or finds that there is none, and says whether the id stays
  // in line.
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

  // A drained event: the line is to be served again.
  void on_drained(Rank host) { lines_[host.index()].watched = false; }

 private:
  struct Line {
    Ring<std::uint32_t> ids;
    bool watched = false;  // a drained event is to come
  };

  void watch(Rank host, std::uint64_t bytes) {
    Line& line = lines_[host.index()];
    const std::optional<Duration> time = fabric_.time_to_drain(host, bytes);
    if (line.watched || !time) return;
    line.watched = true;
    events_.push(events_.now_ps() + time->ps(), drained_, static_cast<std::uint32_t>(host.value()),
                 0, 0);
  }

  EventKind drained_;
  EventQueue& events_;
  Fabric& fabric_;
  std::vector<Line> lines_;  // by host
};

}  // namespace thalweg
