// The sender with selective acknowledgements.
#include <algorithm>

#include "sim/tcp/tcp_sender.h"

namespace thalweg::sim {
namespace {

// RFC 8985: packets overtake each other by at most a quarter of a round trip.
constexpr std::int64_t kReorderingShare = 4;
// The same: how long nothing new is acknowledged before a probe.
constexpr std::int64_t kProbeRoundTrips = 2;

}  // namespace

bool TcpSender::poll_selective(Time now, SegmentToSend& out) {
  if (selective_->probe_due) return poll_probe(now, out);
  Scoreboard& board = selective_->board;
  const Scoreboard::Segment* const lost = board.next_lost();
  if (lost == nullptr && high_ == flow_bytes_) return false;
  const std::uint64_t sequence = lost != nullptr ? lost->begin : high_;
  const std::uint32_t payload = lost != nullptr ? lost->payload : segment_at(high_);
  const double flight = in_flight();
  if (flight > 0 && flight + payload > allowance()) return false;
  // The receiver keeps what it has beyond a hole.
  const auto room = static_cast<double>(parameters_.max_window.count());
  if (lost == nullptr && high_ != acked_ && outstanding() + payload > room) return false;

  fill(sequence, payload, out);
  if (lost != nullptr) {
    board.sent_again(now);
  } else {
    board.sent(now, sequence, payload);
  }
  selective_->reduction.on_sent(payload);
  next_ = high_ = std::max(high_, sequence + payload);
  // With a second segment in flight a probe may come earlier.
  if (!timer_set_ || (lost == nullptr && board.segments() == 2)) restart_timer(now);
  return true;
}

void TcpSender::on_selective_ack(Time now, const Acknowledgement& ack) {
  Scoreboard& board = selective_->board;
  const bool window_limits = in_flight() + mss() > allowance();
  settle_probe(now, ack);
  const std::uint64_t before = acked_;
  std::uint64_t delivered = 0;
  if (ack.next_expected > acked_) {
    acked_ = ack.next_expected;
    delivered += board.acknowledge(acked_);
    timeouts_in_a_row_ = 0;
    measure(now - ack.answered_sent);
    selective_->probe_due = selective_->probed = false;
  }
  if (ack.sack != nullptr) delivered += board.acknowledge(*ack.sack);
  std::uint64_t lost = board.mark_lost();
  lost += board.mark_lost_before(ack.answered_sent - round_trip() / kReorderingShare);
  observe(now, ack);

  const bool was_in_recovery = in_recovery_;
  if (in_recovery_ && acked_ >= recover_) {
    in_recovery_ = false;
    set_window(slow_start_threshold_);
  }
  const bool advanced = acked_ > before;
  if (advanced) {
    timer_set_ = false;
    if (done()) return;
    if (high_ > acked_) restart_timer(now);
  }
  // Until what was sent before a timeout is acknowledged, its losses are known and paid for.
  if (!in_recovery_ && acked_ >= recover_ && board.lost() > 0) enter_recovery(now);
  if (in_recovery_ && delivered > 0) {
    selective_->reduction.on_delivered(static_cast<double>(delivered), in_flight(),
                                       advanced && lost == 0, mss());
  } else if (!was_in_recovery && advanced && window_limits) {
    grow(now, ack, acked_ - before);
  }
}

void TcpSender::set_probe_timer(Time now) {
  Selective& s = *selective_;
  s.probe_timer = false;
  const bool loss_known = in_recovery_ || acked_ < recover_ || s.board.lost() > 0;
  if (parameters_.dup_acks == 0 || !measured_ || loss_known || s.probed) return;
  Duration wait = smoothed_rtt_ * kProbeRoundTrips;
  if (s.board.segments() <= 1) wait += parameters_.rto_min;
  if (now + wait >= deadline_) return;
  deadline_ = now + wait;
  s.probe_timer = true;
}

// A probe may exceed the window by a segment.
bool TcpSender::poll_probe(Time now, SegmentToSend& out) {
  Selective& s = *selective_;
  s.probe_due = false;
  const std::uint32_t fresh = high_ < flow_bytes_ ? segment_at(high_) : 0;
  const auto room = static_cast<double>(parameters_.max_window.count());
  if (fresh > 0 && outstanding() + fresh <= room) {
    fill(high_, fresh, out);
    s.board.sent(now, high_, fresh);
    next_ = high_ += fresh;
    return true;
  }
  if (s.board.segments() == 0) return false;
  const Scoreboard::Segment last = s.board.probe(now);
  fill(last.begin, last.payload, out);
  s.probe_end = last.end();
  return true;
}

// A probe that repaired the only loss is the only news of it: the window pays for that loss, too.
void TcpSender::settle_probe(Time now, const Acknowledgement& ack) {
  Selective& s = *selective_;
  if (s.probe_end == 0 || ack.next_expected < s.probe_end) return;
  s.probe_end = 0;
  if (in_recovery_ || !ack.answered_retransmission) return;
  set_slow_start_threshold(std::max(window_after_loss(now), kLeastThresholdSegments * mss()));
  set_window(slow_start_threshold_);
}

}  // namespace thalweg::sim
