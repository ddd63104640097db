// What a sender with selective acknowledgements knows of the segments that it has sent and that are
// not acknowledged in order (RFC 6675's scoreboard, in segments as Linux keeps it).
//
// A segment is lost when at least `dup_acks` segments behind it were selectively acknowledged, when
// a packet has arrived that was sent sufficiently later (RFC 8985), or at a timeout. A segment is
// in flight if it may still arrive: it was not acknowledged, and it was not lost or was sent again
// after that. RFC 6675 calls those bytes the pipe. A segment that was sent again is lost once more
// by a later packet or by a timeout.
//
// Invariants:
// 1. The segments lie behind each other and end where the sent data ends. Those that are neither
//    acknowledged nor lost were sent in that order.
// 2. Whatever lies before edge_ is acknowledged or lost. Of the segments from edge_ on none is
// lost,
//    above_edge_ are acknowledged, and these are at most dup_acks.
// 3. Before again_ no lost segment waits to be sent again.
// 4. Whatever was sent again and is not acknowledged is in resent_, once, in the order of times.
#pragma once

#include <cstdint>

#include "sim/hosts/transport.h"
#include "switch/queueing/ring.h"

namespace thalweg::sim {

class Scoreboard {
 public:
  struct Segment {
    std::uint64_t begin = 0;
    Time sent;  // for the first time, or as a probe
    std::uint32_t payload = 0;
    bool acknowledged = false;
    bool lost = false;
    bool again = false;  // sent again since it was lost

    [[nodiscard]] std::uint64_t end() const { return begin + payload; }
    [[nodiscard]] bool in_flight() const { return !acknowledged && (!lost || again); }
  };

  // With 0 dup_acks only a timeout says that a segment is lost.
  explicit Scoreboard(std::uint32_t dup_acks) : dup_acks_(dup_acks) {}

  // A segment was sent for the first time, behind all others.
  void sent(Time now, std::uint64_t begin, std::uint32_t payload);
  // Everything below `next` has arrived. Requires that a segment begins or the sent data ends
  // there. Returns the bytes of which that was not known.
  std::uint64_t acknowledge(std::uint64_t next);
  // The blocks have arrived too. Returns the bytes of which that was not known.
  std::uint64_t acknowledge(const SackBlocks& sack);
  // Finds the segments that are lost by now. Returns their bytes.
  std::uint64_t mark_lost();
  // A packet has arrived that was sent so much later that whatever was sent before `then`, and has
  // not arrived, is lost. Returns the bytes of which that was not known.
  std::uint64_t mark_lost_before(Time then);
  // A timeout: every segment that is not acknowledged is lost, those sent again included.
  void lose_all();
  // The first lost segment to send again; null if there is none. It is valid until the next call.
  [[nodiscard]] const Segment* next_lost();
  // The segment of next_lost(), which is not null, was sent again.
  void sent_again(Time now);

  // The last segment that is not acknowledged, sent once more as a probe: that says nothing of what
  // is lost. Requires that there is one.
  Segment probe(Time now);

  // Bytes.
  [[nodiscard]] std::uint64_t in_flight() const { return in_flight_; }
  [[nodiscard]] std::uint64_t lost() const { return lost_; }
  [[nodiscard]] std::uint32_t segments() const { return segments_.size(); }

 private:
  struct Resent {
    Time time;
    std::uint64_t number = 0;
  };

  // The number of a segment counts from the first that was sent.
  [[nodiscard]] std::uint64_t end() const { return first_ + segments_.size(); }
  [[nodiscard]] Segment& at(std::uint64_t number) {
    return segments_.at(static_cast<std::uint32_t>(number - first_));
  }
  // The first segment that begins at or behind this byte.
  [[nodiscard]] std::uint64_t number_at(std::uint64_t byte);
  std::uint64_t move_edge();
  std::uint64_t acknowledge_stretch(std::uint64_t begin, std::uint64_t end);

  const std::uint32_t dup_acks_;
  switches::Ring<Segment> segments_;
  switches::Ring<Resent> resent_;
  std::uint64_t first_ = 0;       // number of the first in segments_
  std::uint64_t edge_ = 0;        // a number
  std::uint64_t above_edge_ = 0;  // segments
  std::uint64_t again_ = 0;       // a number
  std::uint64_t in_flight_ = 0;
  std::uint64_t lost_ = 0;
  SackBlocks known_;  // the blocks of the last acknowledgement, which need no second look
};

}  // namespace thalweg::sim
