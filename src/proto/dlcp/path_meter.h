// PathMeter: what a receiver learns about the path from the data packets of one peer: rates for the
// sender's rate control, and how late a packet may still arrive.
//
// Queues. Every packet says in its tag in which queue switches put it. Switches serve the queues by
// strict priority, so packets keep their order within a queue only, and an urgent packet overtakes
// less urgent ones by any amount. But a packet that has arrived proves that those sent before it in
// its own queue, and in more urgent ones, are not held up by others any more. So order, delays and
// witnesses are kept for each queue.
//
// Paths. Packets that took different paths overtake each other by as much as the paths differ. So
// once packets have come by several, a packet counts as overtaken only if a later one of its own
// path came before it, and data has a witness only when every path that packets have come by
// lately has brought one.
//
// Rates. A report covers the packets between two edges. An edge is a packet with a higher sequence
// number than all before it in its own queue and in less urgent ones, and it is of the least urgent
// queue that still arrives: an edge of a more urgent queue would count packets as lost that only
// wait. The last edge of one report is the first of the next; after a silence of a report period,
// the next packet in order is the first edge instead. So no window includes idle time, and sequence
// numbers tell how many packets were sent, lost ones included.
//
// Lateness. Every packet says when it was sent, by the sender's clock. Its arrival minus that time
// is its delay plus an unknown constant, so differences of delays are exact. While more urgent
// packets arrive a packet may have to wait for them, so its delay is counted from the last of these
// if that is later than it could have arrived by itself. A stop says when the last packet left, and
// the least urgent queue of its data. Data that the stop overtook should have arrived, at the
// latest, when
//   (1) the last packet would arrive with the longest delay seen in that queue, plus the spread of
//       delays; or
//   (2) a packet of that queue or of a less urgent one that was sent after the data (a witness)
//       arrived, by every path, four times as long ago as any packet of that queue was ever seen
//       to arrive behind such a packet of its path. A message that followed the data in its queue
//       is a witness as well (on_data_end).
// On paths that keep order (2) decides, and soon; (1) decides when the witness itself is lost.
// Until enough packets of the queue were seen it is unknown, and only (1) holds, with the initial
// grace.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/segment_tag.h"
#include "base/units.h"
#include "proto/dlcp/options.h"
#include "wire/control_message.h"
#include "wire/data_header.h"

namespace thalweg::proto {

class PathMeter {
 public:
  PathMeter(const GraceOptions& grace, const RateControlOptions& rate);

  // A data packet arrived. `path`: the path that it took; numbers from kMaxReportPaths - 1 on are
  // counted as one path.
  void on_packet(const wire::DataHeader& header, bool marked, std::uint32_t path, Time now);
  // A message arrived in this queue, by this path, that was sent after all packets below
  // `end_sequence`.
  void on_data_end(std::uint64_t end_sequence, std::uint8_t queue, std::uint32_t path, Time now);

  // Returns the report that is due, once; none otherwise.
  std::optional<wire::ReportMessage> take_report();
  [[nodiscard]] bool report_due() const { return report_due_; }

  // When the data that a stop speaks of should have arrived. Later packets may move that time.
  struct Stopped {
    wire::StopMessage stop;
    Time at;                         // when the stop arrived
    std::optional<Time> witnessed;   // when a witness arrived
    std::uint32_t empty_rounds = 0;  // consecutive rounds without data: each doubles the margin
  };
  [[nodiscard]] Time expected_by(const Stopped& stopped, Time now) const;

  // When a witness arrived for packets of `queue` up to `sequence`: a packet of that queue or a
  // less urgent one with that number or a higher one, or a message there that was sent after it;
  // and, where packets came by several paths lately, by each of these. Returns `now` if the time is
  // not known, and none if no witness arrived.
  [[nodiscard]] std::optional<Time> witness(std::uint64_t sequence, std::uint8_t queue,
                                            Time now) const;

 private:
  // Delays seen over about one GraceOptions::memory, in microseconds relative to the first delay
  // ever seen. Each fits 32 bits, but differences of forged ones do not.
  struct Delays {
    std::int64_t least = 0;
    std::int64_t most = 0;
    std::int64_t overtaken = 0;  // the longest that a packet arrived behind a witness
    std::uint32_t packets = 0;
  };
  // The delays of the current stretch of time and of the one before.
  struct Memory {
    std::array<Delays, 2> stretches;
    Time since;  // when the current stretch began
    // Notes a delay. Begins a new stretch if the current one is old and has enough packets.
    Delays& add(std::int64_t delay, const GraceOptions& grace, Time now);
    [[nodiscard]] Delays both() const { return joined(stretches[0], stretches[1]); }
  };
  struct Edge {
    std::uint64_t sequence = 0;
    std::uint32_t sent_us = 0;
    Time arrived;
  };
  struct Queue {
    bool any = false;             // a packet of this queue or a less urgent one has arrived
    Edge high;                    // the one of these packets with the highest sequence number
    std::int64_t high_delay = 0;  // its delay, in microseconds relative to base_
    std::uint64_t data_end = 0;   // the highest end_sequence that on_data_end() gave here; 0: none
    Time data_ended;              // when that message arrived
    Time held;                    // when the last more urgent packet arrived; Time(): never
    Memory memory;                // delays of this queue, without the time that it was held
  };

  // One path, where there are several: what has arrived by it. The queues are as those of Queue.
  struct Path {
    struct Seen {
      std::uint64_t end = 0;   // above the highest sequence number of a witness; 0: none arrived
      std::int64_t delay = 0;  // of that packet
    };
    std::array<Seen, kPriorityCount> queues;
    Time heard;  // when the last packet arrived by it; Time(): none has
  };

  // Delays of one path's packets in a report. Only the least urgent queue that arrives counts,
  // since others overtake it.
  struct PathDelay {
    std::uint32_t packets = 0;
    std::int64_t sum_us = 0;
    std::optional<std::int64_t> least_us;  // the shortest of this path, not only in this report
  };

  // Both together: the longest and the shortest of each, and all packets.
  static Delays joined(const Delays& a, const Delays& b);
  // What is known of the delays in this queue: what was seen there and in more urgent queues, whose
  // packets wait no longer; while little is known of it, or all queues seem to be one, what was
  // seen in any queue. `packets` counts those of the queue itself.
  [[nodiscard]] Delays delays_of(std::uint8_t queue) const;
  [[nodiscard]] bool any() const { return queues_[0].any; }
  [[nodiscard]] bool plausible(std::uint64_t sequence) const;
  // `before`: the delay of the packet that overtook this one; none if none did.
  std::int64_t measure_delay(const wire::DataHeader& header, Queue& queue,
                             std::optional<std::int64_t> before, Time now);
  // The delay of a later packet of the same queue, or a less urgent one, that came by the same path
  // before this one.
  [[nodiscard]] std::optional<std::int64_t> overtaken_by(const wire::DataHeader& header,
                                                         std::uint32_t path) const;
  // Makes room for this path, from the first packet on that does not take path 0.
  void know_path(std::uint32_t path);
  void note_witness(std::uint64_t end, std::uint8_t queue, std::uint32_t path, std::int64_t delay);
  [[nodiscard]] bool witnessed_by_paths(std::uint64_t sequence, std::uint8_t queue, Time now) const;
  void measure_rate(const wire::DataHeader& header, std::uint8_t queue, bool marked,
                    std::uint32_t path, std::int64_t delay, bool in_order, Time now);
  void count_path(std::uint32_t path, std::int64_t delay, bool counts_delay);
  // How much longer the path's packets took than the fastest; begins anew.
  static std::uint16_t take_queued_us(PathDelay& delay);
  void start_window(const Edge& edge);

  GraceOptions grace_;
  Duration report_period_;
  std::uint32_t least_report_packets_;

  // `high`, `data_end` and what belongs to them never increase from one queue to the next.
  std::array<Queue, kPriorityCount> queues_;
  std::vector<Path> by_path_;  // empty while all packets have come by path 0
  bool prioritized_ = false;   // an urgent packet has overtaken a less urgent one
  Memory path_;                // whole delays of the packets of all queues
  Time last_arrival_;          // of any packet
  std::uint32_t base_ = 0;     // the first delay, as a difference of two clocks

  bool window_open_ = false;
  std::uint8_t edge_queue_ = 0;  // the least urgent queue that still arrives
  Time edge_queue_arrived_;      // when its last packet arrived
  Edge first_;                   // the first edge of the next report
  std::uint64_t bytes_received_ = 0;
  std::uint32_t packets_received_ = 0;
  std::uint32_t packets_marked_ = 0;
  std::uint8_t paths_ = 0;  // 0 until a packet arrives that took another path than the first
  std::array<std::uint32_t, wire::kMaxReportPaths> path_packets_ = {};
  std::array<PathDelay, wire::kMaxReportPaths> path_delays_ = {};
  bool report_due_ = false;
  wire::ReportMessage report_;
};

}  // namespace thalweg::proto
