#include "proto/atp/congestion.h"

#include <algorithm>

namespace thalweg {

AtpCongestion::AtpCongestion(const AtpWorkerOptions& options)
    : enabled_(options.congestion.enabled),
      most_packets_(options.window),
      packet_(options.packet_bytes().count()),
      step_(options.congestion.step.count()),
      window_(std::min(options.congestion.initial_packets, options.window) * packet_),
      threshold_(options.congestion.threshold.count()),
      initial_(window_),
      queue_(options.congestion.queue) {
  if (!enabled_) window_ = most_packets_ * packet_;
}

std::uint32_t AtpCongestion::packets() const {
  return static_cast<std::uint32_t>((window_ + packet_ - 1) / packet_);
}

void AtpCongestion::on_parameter(std::uint64_t sequence, bool congested, std::uint64_t next) {
  if (!enabled_) return;
  if (congested) return cut(window_ / 2, sequence, next);
  if (window_ >= initial_ && queued()) {
    threshold_ = std::min(threshold_, window_);
    return;
  }
  if (window_ < threshold_) {
    window_ += step_;
  } else if (credit_ += packet_; credit_ >= window_) {
    credit_ -= window_;
    window_ += step_;
  }
  window_ = std::min(window_, most_packets_ * packet_);
}

// The least is forgotten slowly, should the way become longer.
void AtpCongestion::on_delay(Duration sample, Duration typical) {
  constexpr std::int64_t kForget = 4096;
  typical_ = typical;
  if (!least_ || sample < *least_) least_ = sample;
  *least_ += (sample - *least_) / kForget;
}

bool AtpCongestion::queued() const { return least_ && typical_ - *least_ > queue_; }

// What stood in queues is taken off: a half at most, an eighth at least.
void AtpCongestion::on_loss(std::uint64_t sequence, std::uint64_t next) {
  constexpr std::int64_t kUnit = 1024;
  std::int64_t share = kUnit / 2;
  if (least_ && typical_ > Duration()) {
    share = std::clamp(least_->ps() / (typical_.ps() / kUnit + 1), kUnit / 2, kUnit * 7 / 8);
  }
  // window_ * share alone may be too large a number.
  cut(window_ / kUnit * share + window_ % kUnit * share / kUnit, sequence, next);
}

void AtpCongestion::on_retransmission_lost(std::uint64_t next) {
  if (!enabled_) return;
  cut_until_ = next;
  threshold_ = std::max(window_ / 2, packet_);
  window_ = packet_;
  credit_ = 0;
}

void AtpCongestion::cut(std::int64_t window, std::uint64_t sequence, std::uint64_t next) {
  if (!enabled_ || sequence < cut_until_) return;
  cut_until_ = next;
  window_ = std::max(window, packet_);
  threshold_ = window_;
  credit_ = 0;
}

}  // namespace thalweg
