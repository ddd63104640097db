#include "sim/tcp/tcp_sender.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace thalweg::sim {
namespace {

// RFC 3042: segments that the first duplicates may send beyond the window.
constexpr std::uint32_t kLimitedTransmitSegments = 2;
// After this many doublings the longest allowed timeout is surely reached, without overflow.
constexpr std::uint32_t kMostDoublings = 16;

}  // namespace

TcpSender::TcpSender(const TcpParameters& parameters, std::uint64_t flow_bytes,
                     std::optional<double> window)
    : parameters_(parameters),
      flow_bytes_(flow_bytes),
      slow_start_threshold_(std::numeric_limits<double>::infinity()),
      segment_limit_(static_cast<std::uint32_t>(parameters.mss.count())),
      is_stream_(flow_bytes == 0) {
  if (parameters.sack) selective_ = std::make_unique<Selective>(parameters.dup_acks);
  set_window(std::max(mss(), window.value_or(parameters.initial_window * mss())));
  if (window && parameters.warm == WarmStart::kAvoidance) slow_start_threshold_ = window_;
}

void TcpSender::start(Time /*now*/) { CHECK(high_ == 0, "a flow starts once"); }

void TcpSender::extend(std::uint64_t bytes) {
  CHECK(is_stream_);
  flow_bytes_ += bytes;
}

bool TcpSender::poll_transmit(Time now, SegmentToSend& out) {
  if (selective_ != nullptr) [[unlikely]] {
    return poll_selective(now, out);
  }
  const std::uint64_t sequence = retransmit_head_ ? acked_ : next_;
  if (sequence == flow_bytes_) return false;
  const std::uint32_t payload = segment_at(sequence);
  if (!retransmit_head_ && next_ != acked_ && outstanding() + payload > allowance()) return false;

  fill(sequence, payload, out);
  retransmit_head_ = false;
  next_ = std::max(next_, sequence + payload);
  high_ = std::max(high_, next_);
  if (!timer_set_) restart_timer(now);
  return true;
}

void TcpSender::fill(std::uint64_t sequence, std::uint32_t payload, SegmentToSend& out) {
  out = SegmentToSend{};
  out.sequence = sequence;
  out.payload = payload;
  out.retransmission = sequence < high_;
  tag(out);
  ++counters_.segments;
  if (out.retransmission) ++counters_.retransmissions;
}

void TcpSender::on_ack(Time now, const Acknowledgement& ack) {
  CHECK(ack.next_expected <= high_, "{} acknowledged, {} sent", ack.next_expected, high_);
  if (ack.echo) ++counters_.marks_echoed;
  if (done()) return;
  if (selective_ != nullptr) [[unlikely]] {
    return on_selective_ack(now, ack);
  }
  if (ack.next_expected > acked_) {
    on_new_data_acked(now, ack, ack.next_expected - acked_);
    return;
  }
  observe(now, ack);
  // An older acknowledgement was overtaken by a newer one and says nothing new.
  if (ack.next_expected == acked_ && next_ > acked_) on_duplicate(now, ack);
}

void TcpSender::on_new_data_acked(Time now, const Acknowledgement& ack, std::uint64_t bytes) {
  const bool window_limits = outstanding() + mss() > allowance();
  acked_ += bytes;
  next_ = std::max(next_, acked_);
  duplicates_ = 0;
  retransmit_head_ = false;
  timeouts_in_a_row_ = 0;
  measure(now - ack.answered_sent);
  observe(now, ack);
  if (done()) {
    timer_set_ = false;
    return;
  }
  if (in_recovery_ && acked_ < recover_) {
    on_partial_ack(now, bytes);
    return;
  }
  timer_set_ = false;
  if (next_ > acked_) restart_timer(now);
  if (in_recovery_) {
    leave_recovery();
  } else if (window_limits) {
    grow(now, ack, bytes);
  }
}

void TcpSender::on_partial_ack(Time now, std::uint64_t bytes) {
  inflation_ -= static_cast<double>(bytes);
  if (static_cast<double>(bytes) >= mss()) inflation_ += mss();
  retransmit_head_ = true;
  // Only the first partial acknowledgement restarts the timer, so that a window with many holes
  // ends in a timeout rather than in one round trip per hole.
  if (!partial_ack_seen_) restart_timer(now);
  partial_ack_seen_ = true;
}

void TcpSender::on_duplicate(Time now, const Acknowledgement& ack) {
  if (in_recovery_) {
    inflation_ += mss();
    return;
  }
  if (parameters_.dup_acks == 0 || ack.answered_retransmission || acked_ < recover_) return;
  if (++duplicates_ >= parameters_.dup_acks) enter_recovery(now);
}

void TcpSender::enter_recovery(Time now) {
  const double least = kLeastThresholdSegments * mss();
  slow_start_threshold_ = std::max(window_after_loss(now), least);
  set_window(slow_start_threshold_);
  inflation_ = duplicates_ * mss();
  duplicates_ = 0;
  in_recovery_ = true;
  partial_ack_seen_ = false;
  recover_ = high_;
  retransmit_head_ = true;
  if (selective_ != nullptr) selective_->reduction.begin(slow_start_threshold_, outstanding());
  restart_timer(now);
}

void TcpSender::leave_recovery() {
  in_recovery_ = false;
  inflation_ = 0;
  // At most one segment leaves at once, however little is outstanding (RFC 6582 section 3.2).
  set_window(std::min(slow_start_threshold_, std::max(outstanding(), mss()) + mss()));
}

void TcpSender::on_timeout(Time now) {
  if (!timer_set_ || now < deadline_) return;
  if (selective_ != nullptr && selective_->probe_timer) {
    selective_->probe_due = selective_->probed = true;
    restart_timer(now);
    return;
  }
  ++counters_.timeouts;
  if (timeouts_in_a_row_ == 0) {
    slow_start_threshold_ = std::max(window_after_loss(now), kLeastThresholdSegments * mss());
  }
  ++timeouts_in_a_row_;
  in_recovery_ = false;
  inflation_ = 0;
  duplicates_ = 0;
  retransmit_head_ = false;
  recover_ = high_;
  if (selective_ != nullptr) {
    selective_->board.lose_all();
  } else {
    next_ = acked_;
  }
  set_window(mss());
  after_timeout(now);
  restart_timer(now);
}

std::optional<Time> TcpSender::next_timeout() const {
  if (!timer_set_) return std::nullopt;
  return deadline_;
}

void TcpSender::restart_timer(Time now) {
  deadline_ = now + timeout();
  timer_set_ = true;
  if (selective_ != nullptr) set_probe_timer(now);
}

Duration TcpSender::timeout() const {
  const Duration estimate = measured_ ? smoothed_rtt_ + rtt_variation_ * 4
                                      : parameters_.rto_initial.value_or(parameters_.rto_min);
  const Duration base = std::clamp(estimate, parameters_.rto_min, parameters_.rto_max);
  const std::int64_t factor = std::int64_t{1} << std::min(timeouts_in_a_row_, kMostDoublings);
  // A base close to the largest, times 2^16, stays below 2^63 ps, because rto_max is at most 100 s.
  return std::min(base * factor, parameters_.rto_max);
}

// RFC 6298 section 2: the variation is updated before the mean.
void TcpSender::measure(Duration rtt) {
  if (!measured_) {
    measured_ = true;
    smoothed_rtt_ = rtt;
    rtt_variation_ = rtt / 2;
    return;
  }
  const Duration error = rtt - smoothed_rtt_;
  const Duration distance = error < Duration() ? Duration() - error : error;
  rtt_variation_ += (distance - rtt_variation_) / 4;
  smoothed_rtt_ += error / 8;
}

std::uint32_t TcpSender::segment_at(std::uint64_t sequence) const {
  const auto mss_bytes = static_cast<std::uint64_t>(parameters_.mss.count());
  const std::uint64_t to_boundary = is_stream_ ? mss_bytes : mss_bytes - sequence % mss_bytes;
  const std::uint64_t left = flow_bytes_ - sequence;
  return static_cast<std::uint32_t>(std::min({to_boundary, left, std::uint64_t{segment_limit_}}));
}

double TcpSender::in_flight() const {
  if (selective_ == nullptr) return outstanding();
  // Without limited transmit a segment makes room only when a loss is known, or in order.
  const bool no_loss_known = !in_recovery_ && acked_ >= recover_;
  if (!parameters_.limited_transmit && no_loss_known) return outstanding();
  return static_cast<double>(selective_->board.in_flight());
}

double TcpSender::allowance() const {
  if (selective_ != nullptr) return in_recovery_ ? selective_->reduction.allowance() : window_;
  double bytes = window_;
  if (in_recovery_) {
    bytes += inflation_;
  } else if (parameters_.limited_transmit && next_ == high_) {
    bytes += std::min(duplicates_, kLimitedTransmitSegments) * mss();
  }
  return std::min(bytes, static_cast<double>(parameters_.max_window.count()));
}

void TcpSender::set_window(double bytes) {
  window_ = std::min(bytes, static_cast<double>(parameters_.max_window.count()));
}

void TcpSender::slow_start(std::uint64_t bytes) {
  set_window(window_ + std::min(static_cast<double>(bytes), mss()));
}

void TcpSender::observe(Time /*now*/, const Acknowledgement& /*ack*/) {}

void TcpSender::grow(Time /*now*/, const Acknowledgement& /*ack*/, std::uint64_t bytes) {
  if (in_slow_start()) {
    slow_start(bytes);
  } else {
    set_window(window_ + std::min(static_cast<double>(bytes), mss()) * mss() / window_);
  }
}

double TcpSender::window_after_loss(Time /*now*/) { return std::min(window_, outstanding()) / 2; }

void TcpSender::after_timeout(Time /*now*/) {}

void TcpSender::tag(SegmentToSend& /*segment*/) const {}

}  // namespace thalweg::sim
