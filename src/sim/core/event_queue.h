// The simulator's agenda: plain events, taken in order of time.
//
// The order at equal times does not depend on how the network is divided into shards (ADR 21):
// first arrivals, in an order that a hash of link and time gives, so that no link is always the
// first; then notices, by the number of their flow; then what a node has set for itself, in the
// order in which it was inserted. Only the order of events of one node matters, because every link
// takes time.
//
// Most events lie a packet's flight ahead, in a band of some tens of microseconds; a few (timers,
// calls of the workload) lie far out. So the near future is a wheel of buckets, each a narrow span
// of time. Inserting links an event into its bucket's list; a bucket is sorted when its turn comes.
// Events beyond the wheel wait in a heap, and so do events that fall into the bucket being worked
// off.
//
// Invariants:
// 1. now() never falls; every event in the queue lies at or after it.
// 2. An event of the wheel lies in bucket (current_bucket_, current_bucket_ + kBuckets) and at the
//    slot of its bucket's number modulo kBuckets; the bit of a slot is set iff its list is not
//    empty.
// 3. Events of bucket current_bucket_ or earlier are in current_ (sorted, from next_ on) or soon_;
//    every event in far_ was beyond the wheel when it was inserted.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/prng.h"
#include "base/units.h"
#include "topology/topology.h"

namespace thalweg::sim {

enum class EventKind : std::uint8_t {
  kArrival,             // subject: packet; arc: the link it crossed
  kDeparture,           // the same packet begins to cross an arc that leads to another shard
  kFlowEnded,           // subject: the flow whose sender learns that all has arrived
  kFlowClosed,          // subject: the flow whose receiver learns that the sender is done
  kPortFree,            // arc: the port that may send its next packet
  kTimer,               // subject: flow
  kCall,                // subject: a call of the workload
  kDrained,             // subject: the host whose port may have room again
  kDlcpTimer,           // subject: an end of DLCP
  kDlcpDrained,         // as kDrained, for the ends of DLCP
  kAggregationTimer,    // subject: an end of aggregation
  kAggregationDrained,  // as kDrained, for workers of aggregation
};

// Whether the event tells one end of a flow what happened at the other.
constexpr bool is_notice(EventKind kind) {
  return kind == EventKind::kFlowEnded || kind == EventKind::kFlowClosed;
}

struct Event {
  std::int64_t time_ps = 0;
  // Number, kind and stamp in one word: the number is in the upper bits, so comparing words
  // compares numbers. The number is a hash and the arc for arrivals, the flow for notices, and that
  // of the insertion for other events.
  std::uint64_t order = 0;
  std::uint32_t subject = 0;
  std::uint32_t arc = 0;

  static constexpr int kStampBits = 16;
  static constexpr int kKindBits = 8;

  [[nodiscard]] EventKind kind() const {
    return static_cast<EventKind>((order >> kStampBits) & ((1U << kKindBits) - 1));
  }
  // Set by whoever scheduled the event. The event is void if its subject has another stamp by the
  // time it is taken.
  [[nodiscard]] std::uint16_t stamp() const { return static_cast<std::uint16_t>(order); }
  [[nodiscard]] bool before(const Event& other) const {
    return (time_ps < other.time_ps) | ((time_ps == other.time_ps) & (order < other.order));
  }
};
static_assert(sizeof(Event) == 24);

// A 4-ary heap, smallest first.
class EventHeap {
 public:
  [[nodiscard]] bool empty() const { return events_.empty(); }
  [[nodiscard]] const Event& top() const { return events_.front(); }
  [[nodiscard]] const std::vector<Event>& events() const { return events_; }
  void push(const Event& event);
  void pop();

 private:
  std::vector<Event> events_;
};

class EventQueue {
 public:
  // `bucket` is the span of one bucket, rounded down to a power of two of picoseconds. A good span
  // is one in which about eight events happen when the network is busy.
  explicit EventQueue(Duration bucket);

  [[nodiscard]] Time now() const { return Time::at(Duration::picoseconds(now_ps_)); }
  [[nodiscard]] std::int64_t now_ps() const { return now_ps_; }
  [[nodiscard]] std::uint64_t size() const { return pushed_ - taken_; }
  [[nodiscard]] std::uint64_t taken() const { return taken_; }
  // How many events were pushed for a time in the past: a bug of the caller. They happen now
  // instead.
  [[nodiscard]] std::uint64_t late() const { return late_; }

  void push(std::int64_t time_ps, EventKind kind, std::uint32_t subject, std::uint32_t arc,
            std::uint16_t stamp);

  // Takes the next event if it is due by `until_ps`, and moves now() to it.
  bool pop(std::int64_t until_ps, Event& out);
  // Returns when the next event is due, void events included; empty if there is no event.
  [[nodiscard]] std::optional<Time> next_time();
  // Moves now() forward over a stretch without events.
  void advance_to(std::int64_t time_ps);
  // The event that follows the one just taken, if it is known already; an event inserted since may
  // come before it. For prefetching.
  [[nodiscard]] const Event* glance() const {
    return next_ < current_.size() ? &current_[next_] : nullptr;
  }

  // Visits every event, in no particular order. Slow.
  template <class Visitor>
  void for_each(Visitor&& visit) const {
    for (std::size_t i = next_; i < current_.size(); ++i) visit(current_[i]);
    for (const Event& event : soon_.events()) visit(event);
    for (const Event& event : far_.events()) visit(event);
    for (const std::uint32_t head : heads_) {
      for (std::uint32_t n = head; n != kNone; n = nodes_[n].next) visit(nodes_[n].event);
    }
  }

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  static constexpr std::uint64_t kBuckets = 1 << 15;
  static constexpr std::uint64_t kWords = kBuckets / 64;
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  // The numbers of arrivals lie below those of notices, and these below those of other events.
  static constexpr int kArcBits = 21;
  static_assert(2 * topology::kMaxLinks <= 1 << kArcBits);
  static constexpr std::uint64_t kNotices = std::uint64_t{1} << (kArcBits + 16);
  static constexpr std::uint64_t kOthers = 2 * kNotices;
  static constexpr std::uint64_t kMostEvents = (std::uint64_t{1} << 40) - kOthers;

  struct Node {
    Event event;
    std::uint32_t next = kNone;
  };

  [[nodiscard]] std::uint64_t bucket_of(std::int64_t time_ps) const {
    return static_cast<std::uint64_t>(time_ps) >> shift_;
  }
  // 16 bits of a hash, and below them the arc.
  [[nodiscard]] static std::uint64_t arrival_number(std::int64_t time_ps, std::uint32_t arc) {
    const std::uint64_t mixed = static_cast<std::uint64_t>(time_ps) ^ arc * kGoldenStep;
    return (mixed * 0xd6e8feb86659fd93) >> 48 << kArcBits | arc;
  }
  void link(std::uint64_t slot, const Event& event);
  // Returns the first bucket after current_bucket_ whose list is not empty; kNever if there is
  // none.
  [[nodiscard]] std::uint64_t next_wheel_bucket() const;
  // Makes the next bucket that has events the current one. Returns false if there is none.
  bool advance();
  void unload(std::uint64_t slot);

  int shift_;
  std::int64_t now_ps_ = 0;
  std::uint64_t pushed_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t late_ = 0;

  std::uint64_t current_bucket_ = 0;
  std::vector<Event> current_;
  std::size_t next_ = 0;
  EventHeap soon_;
  EventHeap far_;

  std::vector<std::uint32_t> heads_;
  std::array<std::uint64_t, kWords> filled_{};  // one bit per slot
  std::size_t on_wheel_ = 0;
  std::vector<Node> nodes_;
  std::uint32_t free_ = kNone;
};

inline void EventQueue::link(std::uint64_t slot, const Event& event) {
  std::uint32_t node = free_;
  if (node != kNone) [[likely]] {
    free_ = nodes_[node].next;
  } else {
    node = static_cast<std::uint32_t>(nodes_.size());
    nodes_.emplace_back();
  }
  nodes_[node] = {event, heads_[slot]};
  heads_[slot] = node;
  filled_[slot / 64] |= std::uint64_t{1} << (slot % 64);
  ++on_wheel_;
}

inline void EventQueue::push(std::int64_t time_ps, EventKind kind, std::uint32_t subject,
                             std::uint32_t arc, std::uint16_t stamp) {
  if (time_ps < now_ps_) [[unlikely]] {
    ++late_;
    time_ps = now_ps_;
  }
  const std::uint64_t tag = (static_cast<std::uint64_t>(kind) << Event::kStampBits) | stamp;
  const std::uint64_t inserted = pushed_++;
  const std::uint64_t number = kind == EventKind::kArrival ? arrival_number(time_ps, arc)
                               : is_notice(kind)           ? kNotices | subject
                                                           : kOthers + inserted;
  const std::uint64_t order = (number << (Event::kStampBits + Event::kKindBits)) | tag;
  const Event event{time_ps, order, subject, arc};
  const std::uint64_t bucket = bucket_of(time_ps);
  if (bucket <= current_bucket_) {
    soon_.push(event);
  } else if (bucket - current_bucket_ < kBuckets) [[likely]] {
    link(bucket % kBuckets, event);
  } else {
    far_.push(event);
  }
}

inline bool EventQueue::pop(std::int64_t until_ps, Event& out) {
  const bool sorted = next_ < current_.size();
  if (sorted && (soon_.empty() || current_[next_].before(soon_.top()))) [[likely]] {
    if (current_[next_].time_ps > until_ps) return false;
    out = current_[next_++];
  } else if (!soon_.empty()) {
    if (soon_.top().time_ps > until_ps) return false;
    out = soon_.top();
    soon_.pop();
  } else {
    return advance() && pop(until_ps, out);
  }
  now_ps_ = out.time_ps;
  ++taken_;
  return true;
}

}  // namespace thalweg::sim
