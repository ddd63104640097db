#include "proto/dlcp/rate_control.h"

#include <algorithm>

#include "base/check.h"

namespace thalweg::proto {

RateControl::RateControl(const RateControlOptions& options, Bytes packet_overhead)
    : options_(options),
      overhead_bits_(static_cast<double>(packet_overhead.count()) * 8),
      rate_bps_(static_cast<double>(options.line_rate.bps())),
      line_bps_(rate_bps_) {}

void RateControl::on_report(const wire::ReportMessage& report) {
  const std::int32_t sent_us =
      wire::wire_clock_difference(report.last_sent_us, report.first_sent_us);
  // Packets that left at the same moment show no sending rate. With learn_capacity the rate in
  // force stands in for it: on a slow path, where one burst takes longer than a report period to
  // arrive, all reports are like this.
  const bool one_moment = sent_us == 0 && options_.learn_capacity;
  if (sent_us < 0 || (sent_us == 0 && !one_moment)) return;
  if (report.received_window_ns == 0 || report.packets_received == 0) return;
  const double packets = report.packets_received;
  const double packet_bits =
      static_cast<double>(report.bytes_received) * 8 / packets + overhead_bits_;
  const double received_bps = packets * packet_bits / (report.received_window_ns * 1e-9);
  const double sent_bps =
      one_moment ? rate_bps_ : report.packets_sent * packet_bits / (sent_us * 1e-6);
  const double limit_bps = options_.congestion_factor * received_bps;
  const auto configured_bps = static_cast<double>(options_.line_rate.bps());

  if (std::min(sent_bps, rate_bps_) > limit_bps) {
    if (options_.learn_capacity) {
      line_bps_ = std::clamp(options_.capacity_headroom * received_bps,
                             options_.least_rate * configured_bps, configured_bps);
    }
    state_ = State::kAvoidance;
    rate_bps_ = std::max(std::min(rate_bps_ * options_.decrease_factor, line_bps_),
                         options_.least_rate * line_bps_);
    ++decreases_;
    return;
  }
  if (state_ == State::kLineRate && line_bps_ >= configured_bps) return;
  if (rate_bps_ >= line_bps_) {
    line_bps_ = std::min(configured_bps, line_bps_ * (1 + options_.increase_step));
  }
  rate_bps_ = std::min(line_bps_, rate_bps_ + options_.increase_step * line_bps_);
}

void RateControl::on_retransmission() {
  if (options_.reset_on_retransmission) reset();
}

void RateControl::on_transfer() {
  if (options_.reset_on_transfer) reset();
}

void RateControl::reset() {
  state_ = State::kLineRate;
  rate_bps_ = line_bps_;
}

Bandwidth RateControl::rate() const {
  return Bandwidth::bits_per_second(
      std::max<std::int64_t>(1, static_cast<std::int64_t>(rate_bps_)));
}

Bandwidth RateControl::line_rate() const {
  return Bandwidth::bits_per_second(static_cast<std::int64_t>(line_bps_));
}

void Pacer::on_sent(Time now, Bytes size, Bytes burst, Bandwidth rate) {
  CHECK(now >= free_at_);
  free_at_ = std::max(free_at_, now - rate.transmission_time(burst)) + rate.transmission_time(size);
}

void Pacer::on_rate_change(Time now, Bandwidth before, Bandwidth after) {
  if (free_at_ <= now || before == after) return;
  const double scale = static_cast<double>(before.bps()) / static_cast<double>(after.bps());
  free_at_ = now + Duration::seconds((free_at_ - now).s() * scale);
}

}  // namespace thalweg::proto
