#include "proto/atp/congestion.h"

#include <algorithm>
#include <utility>

namespace thalweg::proto {
namespace {

// Parts of a window are counted in units of 1/kUnit.
constexpr std::int64_t kUnit = 1024;

// Split, because bytes * share may overflow.
std::int64_t scaled(std::int64_t bytes, std::int64_t share) {
  return bytes / kUnit * share + bytes % kUnit * share / kUnit;
}

}  // namespace

AtpCongestion::AtpCongestion(const AtpWorkerOptions& options)
    : enabled_(options.congestion.enabled),
      most_packets_(options.window),
      packet_(options.packet_bytes().count()),
      step_(options.congestion.step.count()),
      window_(std::min(options.congestion.initial_packets, options.window) * packet_),
      threshold_(options.congestion.threshold.count()),
      initial_(window_),
      queue_(options.congestion.queue),
      flight_window_(window_),
      window_before_(window_),
      marked_(kUnit) {
  if (!enabled_) window_ = most_packets_ * packet_;
}

std::uint32_t AtpCongestion::packets() const {
  return static_cast<std::uint32_t>((window_ + packet_ - 1) / packet_);
}

void AtpCongestion::on_parameter(std::uint64_t sequence, bool congested, bool full,
                                 std::uint64_t next) {
  if (!enabled_) return;
  note_mark(sequence, congested, next);
  if (congested) return cut(window_ - scaled(window_, marked_ / 2), sequence, next);
  const bool stood = std::exchange(standing_, queued());
  if (window_ >= initial_ && standing_) {
    if (!stood) give_up_growth();
    threshold_ = std::min(threshold_, window_);
    return;
  }
  if (!full) return;
  if (window_ < threshold_) {
    window_ += step_;
  } else if (credit_ += packet_; credit_ >= window_) {
    credit_ -= window_;
    window_ += step_;
    grown_ += step_;
  }
  window_ = std::min(window_, most_packets_ * packet_);
}

// At most some flights' growth: what it took to fill the link before is kept.
void AtpCongestion::give_up_growth() {
  constexpr std::int64_t kMostSteps = 8;
  window_ = std::max(initial_, window_ - std::min(grown_, kMostSteps * step_));
  grown_ = 0;
  credit_ = 0;
}

// The marked part of a flight counts for a sixteenth, as in DCTCP.
void AtpCongestion::note_mark(std::uint64_t sequence, bool congested, std::uint64_t next) {
  constexpr std::int64_t kGain = 16;
  ++flight_sums_;
  flight_marks_ += congested ? 1 : 0;
  if (flight_until_ == 0) flight_until_ = next;
  if (sequence < flight_until_) return;
  marked_ += (flight_marks_ * kUnit / flight_sums_ - marked_) / kGain;
  flight_sums_ = 0;
  flight_marks_ = 0;
  flight_until_ = next;
  window_before_ = flight_window_;
  flight_window_ = window_;
}

// The least is forgotten slowly, in case the path becomes longer.
void AtpCongestion::on_delay(Duration sample, Duration typical) {
  constexpr std::int64_t kForget = 65536;
  typical_ = typical;
  if (!least_ || sample < *least_) least_ = sample;
  *least_ += (sample - *least_) / kForget;
  on_first(sample);
  *shortest_ += (sample - *shortest_) / kForget;
  if (enabled_) look_for_queue(sample);
}

// A worker that begins again sends its whole window at once, so all later sums stood behind that.
void AtpCongestion::on_first(Duration sample) {
  if (!shortest_ || sample < *shortest_) shortest_ = sample;
}

// The typical time rises too slowly for slow start, which multiplies the window in each flight. The
// window falls to what would have held the queue that is allowed, by the window of the flight in
// which the packets were sent.
void AtpCongestion::look_for_queue(Duration sample) {
  constexpr int kLooks = 16;
  if (window_ >= threshold_ || window_ <= initial_) {
    looked_at_ = 0;
    return;
  }
  lately_ = looked_at_ == 0 ? sample : std::min(lately_, sample);
  if (++looked_at_ < kLooks) return;
  looked_at_ = 0;
  if (lately_ - *shortest_ <= queue_) return;
  const std::int64_t share = (*shortest_ + queue_).ps() / (lately_.ps() / kUnit + 1);
  window_ = std::min(window_, std::max(initial_, scaled(window_before_, share)));
  threshold_ = window_;
  credit_ = 0;
}

bool AtpCongestion::queued() const { return shortest_ && typical_ - *shortest_ > queue_; }

// Removes from the window what stood in queues beyond a second flight: at most a half. Sums that
// take less than twice the least show that no queue stands which could have overflowed.
void AtpCongestion::on_loss(std::uint64_t sequence, std::uint64_t next) {
  std::int64_t share = kUnit / 2;
  if (least_ && typical_ > Duration()) {
    share = std::clamp(2 * least_->ps() / (typical_.ps() / kUnit + 1), kUnit / 2, kUnit);
  }
  if (share < kUnit) cut(scaled(window_, share), sequence, next);
}

void AtpCongestion::on_retransmission_lost(std::uint64_t next) {
  if (!enabled_) return;
  cut_until_ = next;
  threshold_ = std::max(window_ / 2, packet_);
  window_ = packet_;
  credit_ = 0;
  grown_ = 0;
}

void AtpCongestion::cut(std::int64_t window, std::uint64_t sequence, std::uint64_t next) {
  if (!enabled_ || sequence < cut_until_) return;
  cut_until_ = next;
  window_ = std::max(window, packet_);
  threshold_ = window_;
  credit_ = 0;
  grown_ = 0;
}

}  // namespace thalweg::proto
