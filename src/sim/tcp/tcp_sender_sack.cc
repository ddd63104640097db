// The sender with selective acknowledgements.
#include <algorithm>

#include "sim/tcp/tcp_sender.h"

namespace thalweg::sim {
namespace {

// RFC 8985: packets overtake each other by at most a quarter of a round trip.
constexpr std::int64_t kReorderingShare = 4;

}  // namespace

bool TcpSender::poll_selective(Time now, SegmentToSend& out) {
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
    board.sent(sequence, payload);
  }
  selective_->reduction.on_sent(payload);
  next_ = high_ = std::max(high_, sequence + payload);
  if (!timer_set_) restart_timer(now);
  return true;
}

void TcpSender::on_selective_ack(Time now, const Acknowledgement& ack) {
  Scoreboard& board = selective_->board;
  const bool window_limits = in_flight() + mss() > allowance();
  const std::uint64_t before = acked_;
  std::uint64_t delivered = 0;
  if (ack.next_expected > acked_) {
    acked_ = ack.next_expected;
    delivered += board.acknowledge(acked_);
    timeouts_in_a_row_ = 0;
    measure(now - ack.answered_sent);
  }
  if (ack.sack != nullptr) delivered += board.acknowledge(*ack.sack);
  std::uint64_t lost = board.mark_lost();
  lost += board.mark_lost_again(ack.answered_sent - round_trip() / kReorderingShare);
  observe(now, ack);
  const bool advanced = acked_ > before;
  if (advanced) {
    timer_set_ = false;
    if (done()) return;
    if (high_ > acked_) restart_timer(now);
  }

  const bool was_in_recovery = in_recovery_;
  if (in_recovery_ && acked_ >= recover_) {
    in_recovery_ = false;
    set_window(slow_start_threshold_);
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

}  // namespace thalweg::sim
