// DLCP's rate control (section 3.2.1, figure 7). It does only enough to keep a network from
// collapse, since losses within the bound cost nothing.
//
//   line-rate start ──congested: halve──▶ congestion avoidance ─┐ congested: halve
//          ▲                                     │      ▲       │ else: + 5 % of the line rate
//          └────────── retransmission ───────────┘      └───────┘
//
// The paper compares the sending rate with the receiving rate. We compare the smaller of two rates
// with it: the rate in force, and the rate at which the reported packets left. So a sender that
// shares its line with others, or had little to send, is not taken for congested because little
// arrived; and a report about packets from before a halving does not halve again.
#pragma once

#include <cstdint>
#include <optional>

#include "base/units.h"
#include "proto/dlcp/options.h"
#include "wire/control_message.h"

namespace thalweg::proto {

class RateControl {
 public:
  enum class State : std::uint8_t { kLineRate, kAvoidance };

  // `packet_overhead`: bytes on the line that every packet adds to its payload.
  RateControl(const RateControlOptions& options, Bytes packet_overhead);

  void on_report(const wire::ReportMessage& report);
  void on_retransmission();
  void on_transfer();

  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] Bandwidth rate() const;
  // The rate used as the link's bandwidth: the configured one, unless a lower one was learnt.
  [[nodiscard]] Bandwidth line_rate() const;
  [[nodiscard]] std::uint64_t decreases() const { return decreases_; }

 private:
  void reset();

  RateControlOptions options_;
  double overhead_bits_;
  double rate_bps_;
  double line_bps_;
  State state_ = State::kLineRate;
  std::uint64_t decreases_ = 0;
};

// Decides when the next packets may leave. A caller that is late makes up for the lost time, up to
// one burst, so that the average rate holds.
class Pacer {
 public:
  // The earliest time at which something may be sent.
  [[nodiscard]] Time free_at() const { return free_at_; }
  // `size` bytes leave now, at `rate`; `burst` is the most that leaves at once. Requires
  // now >= free_at().
  void on_sent(Time now, Bytes size, Bytes burst, Bandwidth rate);
  // The rate changes: scales the rest of the wait, which was computed for the rate `before`.
  void on_rate_change(Time now, Bandwidth before, Bandwidth after);

 private:
  Time free_at_;
};

}  // namespace thalweg::proto
