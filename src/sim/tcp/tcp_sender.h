// The sender that every TCP-like transport shares: what to send when, loss detection and recovery.
// A scheme derives from it and decides how large the window is (one file per scheme).
//
// Without selective acknowledgements loss recovery is NewReno's (RFC 5681, 6582):
// - `dup_acks` duplicates start a fast retransmit of the first missing segment. During the recovery
//   that follows, each further duplicate allows one more segment (`inflation_`), and a partial
//   acknowledgement retransmits the next hole and takes back the inflation that it acknowledged.
//   The acknowledgement that covers everything sent before the loss was detected ends the recovery.
// - A duplicate that answers a retransmission says that the retransmission was not needed, not that
//   a segment is missing, and is not counted. Nor is any duplicate until everything sent before a
//   timeout is acknowledged. RFC 6582 section 4 does the same with timestamps.
// - On a timeout (RFC 6298) everything unacknowledged counts as lost and is sent again from the
//   first byte on, in slow start. The timeout doubles each time until something is acknowledged.
//   Every packet carries the time at which it was sent, so retransmissions are measured too (RFC
//   7323).
//
// With selective acknowledgements (`sack`) a scoreboard says what is lost and what is in flight
// (RFC 6675). Lost segments are sent again before new ones, as long as the window has room for what
// is in flight; so all losses of a window are repaired in about a round trip.
// - A recovery starts with the first lost segment, and ends as above. Meanwhile the window comes
//   down by proportional rate reduction (RFC 6937).
// - On a timeout whatever was not acknowledged is lost, and what was acknowledged selectively stays
//   so.
// - What was sent is lost when a packet has arrived that was sent a quarter of a round trip later,
//   retransmissions included (RFC 8985, section 6).
// - When nothing new was acknowledged for two round trips a probe is sent, the next new segment or
//   else the last one again, so that its acknowledgement tells what is lost (RFC 8985, section 7).
//   One segment alone waits `rto_min` longer, as in Linux, and so usually for the timeout.
//
// Invariants:
// 1. acked_ <= next_ <= high_ <= flow_bytes_; [acked_, next_) is outstanding.
// 2. While bytes are outstanding the timer is set.
// 3. During recovery, and always with a scoreboard, next_ == high_. During recovery acked_ <
//    recover_ <= high_.
// 4. Segments of a flow end at multiples of the MSS or at the flow's end. Those of a stream are as
//    large as what is there when they leave, up to the MSS.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "sim/hosts/transport.h"
#include "sim/tcp/rate_reduction.h"
#include "sim/tcp/scoreboard.h"
#include "sim/tcp/transports.h"

namespace thalweg::sim {

class TcpSender : public StreamSender {
 public:
  // Whether the scheme decides by the size of a flow, so that it has no streams.
  static constexpr bool kLooksAtSize = false;

  // The parameters must be valid and outlive the sender. With flow_bytes of 0 it is a stream, whose
  // bytes extend() appends.
  TcpSender(const TcpParameters& parameters, std::uint64_t flow_bytes,
            std::optional<double> window);

  void start(Time now) final;
  void on_ack(Time now, const Acknowledgement& ack) final;
  void on_timeout(Time now) final;
  bool poll_transmit(Time now, SegmentToSend& out) final;
  [[nodiscard]] std::optional<Time> next_timeout() const final;
  [[nodiscard]] bool done() const final { return acked_ == flow_bytes_ && !is_stream_; }
  // Requires a stream.
  void extend(std::uint64_t bytes) final;
  [[nodiscard]] std::uint64_t unsent() const final { return flow_bytes_ - high_; }
  [[nodiscard]] const SenderCounters& counters() const final { return counters_; }
  // The window in bytes, without the inflation of fast recovery.
  [[nodiscard]] double window() const final { return window_; }

 protected:
  // Hooks of a scheme, in the order in which an acknowledgement or a loss calls them.

  // Called for every acknowledgement of an unfinished flow, after acked() has moved and before
  // grow().
  virtual void observe(Time now, const Acknowledgement& ack);
  // Called when `bytes` are newly acknowledged, outside of recovery, and the window limited the
  // flow. By default as Reno: one segment per segment below the slow-start threshold, one per
  // window above.
  virtual void grow(Time now, const Acknowledgement& ack, std::uint64_t bytes);
  // Called when a loss was detected. Returns the new window; by default half of what is
  // outstanding.
  virtual double window_after_loss(Time now);
  // Called when a timeout has set the window to one segment.
  virtual void after_timeout(Time now);
  // Sets priority, rank and ECN of a segment.
  virtual void tag(SegmentToSend& segment) const;

  [[nodiscard]] double mss() const { return static_cast<double>(parameters_.mss.count()); }
  [[nodiscard]] std::uint64_t flow_bytes() const { return flow_bytes_; }
  [[nodiscard]] std::uint64_t acked() const { return acked_; }
  // Everything ever sent lies below this byte.
  [[nodiscard]] std::uint64_t sent() const { return high_; }
  [[nodiscard]] bool in_recovery() const { return in_recovery_; }
  [[nodiscard]] bool in_slow_start() const { return window_ < slow_start_threshold_; }
  [[nodiscard]] double outstanding() const { return static_cast<double>(next_ - acked_); }
  // How many timeouts there were since something new was acknowledged.
  [[nodiscard]] std::uint32_t timeouts_in_a_row() const { return timeouts_in_a_row_; }
  // The smoothed round-trip time; zero before the first measurement.
  [[nodiscard]] Duration round_trip() const { return smoothed_rtt_; }

  // Sets the window, to at most the largest one allowed.
  void set_window(double bytes);
  void set_slow_start_threshold(double bytes) { slow_start_threshold_ = bytes; }
  // RFC 5681: grows by at most one segment per acknowledgement, however much it covers.
  void slow_start(std::uint64_t bytes);
  // Segments are cut to this size: the MSS, unless a scheme probes.
  void set_segment_limit(std::uint32_t bytes) { segment_limit_ = bytes; }

 private:
  // RFC 5681: the threshold never falls below two segments.
  static constexpr double kLeastThresholdSegments = 2;

  void on_new_data_acked(Time now, const Acknowledgement& ack, std::uint64_t bytes);
  void on_duplicate(Time now, const Acknowledgement& ack);
  void on_partial_ack(Time now, std::uint64_t bytes);
  void enter_recovery(Time now);
  void leave_recovery();
  bool poll_selective(Time now, SegmentToSend& out);
  void on_selective_ack(Time now, const Acknowledgement& ack);
  bool poll_probe(Time now, SegmentToSend& out);
  void settle_probe(Time now, const Acknowledgement& ack);
  // Sets the timer for a probe if there may be one before the timeout.
  void set_probe_timer(Time now);
  void fill(std::uint64_t sequence, std::uint32_t payload, SegmentToSend& out);
  void measure(Duration rtt);
  [[nodiscard]] Duration timeout() const;
  void restart_timer(Time now);
  [[nodiscard]] std::uint32_t segment_at(std::uint64_t sequence) const;
  // How many bytes may be in flight now.
  [[nodiscard]] double allowance() const;
  // The bytes that the allowance limits: those outstanding, without what a scoreboard knows to have
  // left the network.
  [[nodiscard]] double in_flight() const;

  // What only a sender with selective acknowledgements has.
  struct Selective {
    explicit Selective(std::uint32_t dup_acks) : board(dup_acks) {}
    Scoreboard board;
    RateReduction reduction;
    bool probe_timer = false;  // the timer is for a probe
    bool probe_due = false;
    bool probed = false;          // since something new was acknowledged
    std::uint64_t probe_end = 0;  // where a probe ends that was sent before; 0: none
  };

  const TcpParameters& parameters_;
  std::unique_ptr<Selective> selective_;
  std::uint64_t flow_bytes_;
  std::uint64_t acked_ = 0;
  std::uint64_t next_ = 0;
  std::uint64_t high_ = 0;
  // The end of what had been sent when the last loss was detected.
  std::uint64_t recover_ = 0;
  double window_ = 0;
  double slow_start_threshold_ = 0;
  // Bytes that recovery adds to the window, for segments known to have left the network.
  double inflation_ = 0;
  Duration smoothed_rtt_;
  Duration rtt_variation_;
  Time deadline_;
  SenderCounters counters_;
  std::uint32_t segment_limit_;
  std::uint32_t duplicates_ = 0;
  std::uint32_t timeouts_in_a_row_ = 0;
  const bool is_stream_;
  bool timer_set_ = false;
  bool measured_ = false;
  bool in_recovery_ = false;
  bool partial_ack_seen_ = false;  // in this recovery
  bool retransmit_head_ = false;   // the segment at acked_ is sent next, whatever the window
};

}  // namespace thalweg::sim
