// What a receiver learns about the path from the data packets of one peer: rates for the sender's
// rate control, and how late a packet may still come.
//
// Rates. A report speaks of the packets between two edges. An edge is a packet with a higher
// sequence number than all before it; a report's last edge is the next one's first, except after a
// silence of a report period, when the next such packet is. So idle time is in no window,
// and what was sent is known from sequence numbers, lost packets included.
//
// Lateness. Every packet says when it was sent, by the sender's clock; arrival less that is its
// delay plus an unknown constant, and differences of delays are exact. A stop says when the last
// packet left. Data that the stop overtook should be here, at the latest, when
//   (1) a packet sent last with the longest delay seen would be, plus the spread of delays; or
//   (2) a packet sent after them (a witness) has been here four times as long as a packet was ever
//       seen to arrive behind one that was sent after it. A message that followed them on their way
//       is one as well (on_data_end).
// (2) alone decides soon on paths that keep order, (1) when the witness is lost itself.
// Until enough packets were seen the path is unknown, and only (1) holds, with the initial grace.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/units.h"
#include "proto/dlcp/options.h"
#include "wire/control_message.h"
#include "wire/data_header.h"

namespace thalweg {

class PathMeter {
 public:
  PathMeter(const GraceOptions& grace, const RateControlOptions& rate);

  // `path`: by which it came; from kMaxReportPaths on they are not told apart.
  void on_packet(const DataHeader& header, bool marked, std::uint32_t path, Time now);
  // Something is here that left behind all packets below `end_sequence`.
  void on_data_end(std::uint64_t end_sequence, Time now);

  // The report that is due; once.
  std::optional<ReportMessage> take_report();
  [[nodiscard]] bool report_due() const { return report_due_; }

  // When the data that a stop spoke of should have arrived; a time that later packets may move.
  struct Stopped {
    StopMessage stop;
    Time at;                         // when the stop arrived
    std::optional<Time> witnessed;   // when a witness did
    std::uint32_t empty_rounds = 0;  // in a row that brought nothing: each doubles the margin
  };
  [[nodiscard]] Time expected_by(const Stopped& stopped, Time now) const;

  // When a packet at or above `sequence` was here: at the latest now. None if there was none.
  [[nodiscard]] std::optional<Time> witness(std::uint64_t sequence, Time now) const;

 private:
  // Over about one memory. Microseconds, relative to the first delay ever seen. Each fits 32 bits;
  // differences of forged ones do not.
  struct Delays {
    std::int64_t least = 0;
    std::int64_t most = 0;
    std::int64_t overtaken = 0;  // the longest that one came behind a later one
    std::uint32_t packets = 0;
  };
  struct Edge {
    std::uint64_t sequence = 0;
    std::uint32_t sent_us = 0;
    Time arrived;
  };

  void measure_delay(const DataHeader& header, Time now, bool in_order);
  void measure_rate(const DataHeader& header, bool marked, std::uint32_t path, Time now,
                    bool in_order);
  void count_path(std::uint32_t path);
  void start_window(const Edge& edge);
  [[nodiscard]] Delays delays() const;

  GraceOptions grace_;
  Duration report_period_;
  std::uint32_t least_report_packets_;

  bool any_ = false;
  Edge high_;                   // the packet with the highest sequence number
  std::uint64_t data_end_ = 0;  // the highest of on_data_end(); 0: none
  Time data_ended_;             // when it was here
  Time last_arrival_;           // of any packet
  std::uint32_t base_ = 0;      // the first delay, as a difference of two clocks
  std::int64_t high_delay_ = 0;
  std::array<Delays, 2> memory_;  // this stretch of time and the one before
  Time memory_since_;

  bool window_open_ = false;
  Edge first_;  // the first edge of the report in the making
  std::uint64_t bytes_received_ = 0;
  std::uint32_t packets_received_ = 0;
  std::uint32_t packets_marked_ = 0;
  std::uint8_t paths_ = 0;  // 0 until one came by another path than the first
  std::array<std::uint32_t, kMaxReportPaths> path_packets_ = {};
  bool report_due_ = false;
  ReportMessage report_;
};

}  // namespace thalweg
