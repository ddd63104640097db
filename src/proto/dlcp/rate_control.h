// DLCP's rate control (section 3.2.1, figure 7): only enough to keep a network from collapse, since
// losses within the bound cost nothing.
//
//   line-rate start ──congested: halve──▶ congestion avoidance ─┐ congested: halve
//          ▲                                     │      ▲       │ else: + 5 % of the line rate
//          └────────── retransmission ───────────┘      └───────┘
//
// The paper compares the sending rate with the receiving rate. We compare both the rate in force
// and the rate at which those very packets left: a sender that shares its line with others, or had
// nothing to send, is not congested because little arrived; and a report about packets from before
// a halving does not halve again.
#pragma once

#include <cstdint>
#include <optional>

#include "base/units.h"
#include "proto/dlcp/options.h"
#include "wire/control_message.h"

namespace thalweg {

class RateControl {
 public:
  enum class State : std::uint8_t { kLineRate, kAvoidance };

  // `packet_overhead`: counted as sent with every packet.
  RateControl(const RateControlOptions& options, Bytes packet_overhead);

  void on_report(const ReportMessage& report);
  void on_retransmission();
  void on_transfer();

  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] Bandwidth rate() const;
  // What stands for the link's bandwidth: the configured one, unless learnt.
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

// When the next packets may leave. Time that a late caller missed is made up for, up to one burst,
// so that the average rate holds.
class Pacer {
 public:
  // When something may be sent.
  [[nodiscard]] Time free_at() const { return free_at_; }
  // `size` leaves now, at `rate`; `burst` is the most that leaves at once. Requires
  // now >= free_at().
  void on_sent(Time now, Bytes size, Bytes burst, Bandwidth rate);
  // What is still to be waited for was sent at another rate than the one that holds from now on.
  void on_rate_change(Time now, Bandwidth before, Bandwidth after);

 private:
  Time free_at_;
};

}  // namespace thalweg
