// TCP CUBIC (RFC 9438), without ECN; with HyStart if it is asked for.
//
// After a loss the window follows a cubic function of time, not of round trips:
//   W(t) = C (t - K)^3 + W_max,   K = cbrt((W_max - W_0) / C)
// where W_0 is the window at the start of congestion avoidance. It rises to the plateau at W_max,
// where the loss was, and on beyond it. Where Reno's window (W_est) would be larger, that is taken.
// Windows are in segments here.
#include <algorithm>
#include <cmath>

#include "sim/tcp/hystart.h"
#include "sim/tcp/tcp_factory.h"
#include "sim/tcp/tcp_sender.h"

namespace thalweg::sim {
namespace {

class CubicSender final : public TcpSender {
 public:
  CubicSender(const CubicParameters& parameters, std::uint64_t flow_bytes,
              std::optional<double> window)
      : TcpSender(parameters, flow_bytes, window), parameters_(parameters) {}

 protected:
  void observe(Time now, const Acknowledgement& ack) override {
    if (!parameters_.hystart || !in_slow_start() || in_recovery() || acked() == seen_) return;
    seen_ = acked();
    const bool full = hystart_.on_ack({.now = now,
                                       .round_trip = now - ack.answered_sent,
                                       .smoothed = round_trip(),
                                       .acked = acked(),
                                       .sent = sent(),
                                       .window = window(),
                                       .window_segments = window() / mss()});
    if (full) set_slow_start_threshold(window());
  }

  void grow(Time now, const Acknowledgement& /*ack*/, std::uint64_t bytes) override {
    if (in_slow_start()) {
      slow_start(bytes);
      return;
    }
    const double segments = window() / mss();
    if (!in_epoch_) open_epoch(now, segments);
    const double acked_segments = std::min(static_cast<double>(bytes) / mss(), 1.0);
    const double elapsed = (now - epoch_start_).s();

    // Section 4.3: Reno that cuts by beta instead of one half, until it is back at its old window.
    const double beta = parameters_.beta;
    const double slope = reno_window_ < window_before_loss_ ? 3 * (1 - beta) / (1 + beta) : 1;
    reno_window_ += slope * acked_segments / segments;
    if (cubic(elapsed) < reno_window_) {
      set_window(std::max(segments, reno_window_) * mss());
      return;
    }
    // Sections 4.4, 4.5: grow towards the cubic's value one round trip from now.
    const double target =
        std::clamp(cubic(elapsed + round_trip().s()), segments, kMostGrowth * segments);
    set_window((segments + (target - segments) / segments * acked_segments) * mss());
  }

  double window_after_loss(Time /*now*/) override {
    const double segments = window() / mss();
    window_before_loss_ = segments;
    // Section 4.7: a flow that did not get back to its last plateau makes room for a new flow.
    const bool gave_way = parameters_.fast_convergence && segments < plateau_;
    plateau_ = gave_way ? segments * (1 + parameters_.beta) / 2 : segments;
    in_epoch_ = false;
    timed_out_ = false;
    return std::min(window(), outstanding()) * parameters_.beta;
  }

  void after_timeout(Time /*now*/) override {
    in_epoch_ = false;
    timed_out_ = true;
    hystart_.reset();
  }

 private:
  static constexpr double kMostGrowth = 1.5;  // in a round trip

  // Section 4.8: after a timeout, or if there was no loss, the current window is the plateau.
  void open_epoch(Time now, double segments) {
    in_epoch_ = true;
    epoch_start_ = now;
    reno_window_ = segments;
    const bool below_plateau = !timed_out_ && segments < plateau_;
    origin_ = below_plateau ? plateau_ : segments;
    time_to_origin_ = std::cbrt((origin_ - segments) / parameters_.c);
  }

  [[nodiscard]] double cubic(double elapsed) const {
    const double distance = elapsed - time_to_origin_;
    return parameters_.c * distance * distance * distance + origin_;
  }

  const CubicParameters& parameters_;
  HyStart hystart_;
  std::uint64_t seen_ = 0;         // what was acknowledged when HyStart looked last
  double plateau_ = 0;             // W_max
  double window_before_loss_ = 0;  // cwnd_prior
  double reno_window_ = 0;         // W_est
  double origin_ = 0;              // W_max of this epoch
  double time_to_origin_ = 0;      // K, seconds
  Time epoch_start_;
  bool in_epoch_ = false;
  bool timed_out_ = false;
};

}  // namespace

void bind_parameters(ParameterBinder& binder, CubicParameters& parameters) {
  bind_parameters(binder, static_cast<TcpParameters&>(parameters));
  binder.bind("c", parameters.c, {0.001, 1e9}, "steepness in packets per second cubed");
  binder.bind("beta", parameters.beta, {0.1, 0.99}, "share of the window that a loss leaves");
  binder.bind("fast_convergence", parameters.fast_convergence,
              "make room for new flows on repeated losses");
  binder.bind("hystart", parameters.hystart, "leave slow start before a buffer is full");
}

MadeTransport make_cubic(CubicParameters parameters, const KeyValues& given) {
  return make_tcp<CubicSender>("cubic", parameters, given);
}

}  // namespace thalweg::sim
