#include "proto/atp/congestion.h"

#include <algorithm>

namespace thalweg {

AtpCongestion::AtpCongestion(const AtpWorkerOptions& options)
    : enabled_(options.congestion.enabled),
      most_packets_(options.window),
      packet_(options.packet_bytes().count()),
      step_(options.congestion.step.count()),
      window_(std::min(options.congestion.initial_packets, options.window) * packet_),
      threshold_(options.congestion.threshold.count()) {
  if (!enabled_) window_ = most_packets_ * packet_;
}

std::uint32_t AtpCongestion::packets() const {
  return static_cast<std::uint32_t>((window_ + packet_ - 1) / packet_);
}

void AtpCongestion::on_parameter(std::uint64_t sequence, bool congested, std::uint64_t next) {
  if (!enabled_) return;
  if (congested) return cut(sequence, next);
  if (window_ < threshold_) {
    window_ += step_;
  } else if (credit_ += packet_; credit_ >= window_) {
    credit_ -= window_;
    window_ += step_;
  }
  window_ = std::min(window_, most_packets_ * packet_);
}

void AtpCongestion::on_retransmission_lost(std::uint64_t next) {
  if (!enabled_) return;
  cut_until_ = next;
  threshold_ = std::max(window_ / 2, packet_);
  window_ = packet_;
  credit_ = 0;
}

void AtpCongestion::cut(std::uint64_t sequence, std::uint64_t next) {
  if (!enabled_ || sequence < cut_until_) return;
  cut_until_ = next;
  window_ = std::max(window_ / 2, packet_);
  threshold_ = window_;
  credit_ = 0;
}

}  // namespace thalweg
