#include "proto/dlcp/receiver.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "proto/dlcp/sender.h"

namespace thalweg::proto {

DlcpReceiver::DlcpReceiver(TransferHandle handle, const TransferSpec& spec,
                           const tensor::Partition& partition, std::uint32_t transfer, Time now)
    : handle_(handle),
      spec_(spec),
      partition_(partition),
      transfer_(transfer),
      started_(now),
      bound_missing_(spec.bound.allowed_missing(partition.segment_count())),
      target_missing_(spec.target.value_or(spec.bound).allowed_missing(partition.segment_count())),
      arrived_(static_cast<std::size_t>(partition.segment_count())),
      first_segment_(first_segment(transfer, arrived_.size(), spec.bound)),
      wake_(now + spec.deadline) {}

wire::ReadyMessage DlcpReceiver::ready() const {
  wire::ReadyMessage message;
  message.transfer = transfer_;
  message.key = spec_.key;
  message.tensor_bytes = static_cast<std::uint64_t>(partition_.tensor_size().count());
  message.segment_bytes = static_cast<std::uint32_t>(partition_.segment_size().count());
  message.bound_ppb = spec_.bound.ppb();
  message.type = spec_.type;
  return message;
}

Placement DlcpReceiver::on_data(const wire::DataHeader& header, Time now) {
  using Verdict = Placement::Verdict;
  if (header.segment >= static_cast<std::uint32_t>(partition_.segment_count())) {
    return {Verdict::kBadSegment, handle_, spec_.cookie, Bytes()};
  }
  const tensor::Segment segment =
      partition_.segment(SegmentIndex(static_cast<std::int32_t>(header.segment)));
  if (segment.length != Bytes(header.length)) {
    return {Verdict::kBadLength, handle_, spec_.cookie, Bytes()};
  }
  if (!header.retransmission) {
    const std::size_t n = arrived_.size();
    const std::size_t place = (header.segment + n - first_segment_) % n;
    reached_ = std::max(reached_, static_cast<std::uint32_t>(place + 1));
  }
  if (!arrived_.set(header.segment)) {
    return {Verdict::kDuplicate, handle_, spec_.cookie, Bytes()};
  }
  if (arrived_.count() == 1) {
    first_arrival_ = now;
  } else {
    longest_gap_ = std::max(longest_gap_, now - last_arrival_);
  }
  last_arrival_ = now;
  quiet_since_ = std::max(quiet_since_, now);
  agreed_ = true;
  return {Verdict::kPlace, handle_, spec_.cookie, segment.offset};
}

bool DlcpReceiver::on_stop(const wire::StopMessage& message, Time now) {
  if (message.round != round_ || stopped_) return false;
  agreed_ = true;
  reached_ = static_cast<std::uint32_t>(partition_.segment_count());
  stopped_ = PathMeter::Stopped{message, now, std::nullopt, empty_rounds_};
  return true;
}

DlcpReceiver::Action DlcpReceiver::action(const PathMeter& path, const PatienceOptions& options,
                                          Duration round_trip, Time now) {
  wake_ = deadline();
  if (!agreed_) return Action::kWait;
  if (missing() <= target_missing_) return Action::kFinish;
  const bool bound_kept = missing() <= bound_missing_;
  const Duration worth = patience(options);
  if (bound_kept) {
    if (now >= quiet_since_ + worth) return Action::kFinish;
    wake_ = std::min(wake_, quiet_since_ + worth);
  }
  if (!stopped_) return Action::kWait;
  if (!stopped_->witnessed) {
    stopped_->witnessed = path.witness(stopped_->stop.end_sequence - 1, stopped_->stop.queue, now);
  }
  const Time expected = path.expected_by(*stopped_, now);
  if (now < expected) {
    wake_ = std::min(wake_, expected);
    return Action::kWait;
  }
  return bound_kept && round_trip > worth ? Action::kFinish : Action::kAsk;
}

Duration DlcpReceiver::patience(const PatienceOptions& options) const {
  const auto wanted = static_cast<double>(missing() - target_missing_);
  const auto pace_s = (last_arrival_ - first_arrival_).s() /
                      std::max<double>(1, static_cast<double>(arrived()) - 1);
  const double worth_s = std::min(options.factor * wanted * pace_s, options.most.s());
  const Duration worth = std::max(Duration::seconds(worth_s), longest_gap_ * 2);
  return std::clamp(worth, options.least, options.most);
}

std::optional<DlcpReceiver::Witness> DlcpReceiver::awaited_witness() const {
  if (!stopped_ || stopped_->witnessed || stopped_->stop.end_sequence == 0) return std::nullopt;
  return Witness{stopped_->stop.end_sequence - 1, stopped_->stop.queue};
}

void DlcpReceiver::ask(Fifo<wire::ControlMessage>& out, Duration round_trip, Time now) {
  CHECK(missing() > 0);
  empty_rounds_ = arrived() == arrived_before_round_ ? empty_rounds_ + 1 : 0;
  arrived_before_round_ = arrived();
  ++round_;
  asked_ += static_cast<std::uint64_t>(missing());
  stopped_.reset();
  quiet_since_ = std::max(quiet_since_, now + round_trip);
  wake_ = deadline();

  wire::ResendMessage message{transfer_, round_, false, {}};
  for (auto run = arrived_.missing_run(0); !run.empty(); run = arrived_.missing_run(run.end)) {
    if (message.ranges.size() == wire::kMaxRangesPerMessage) {
      out.push(message);
      message.ranges.clear();
    }
    message.ranges.push_back(
        {static_cast<std::uint32_t>(run.begin), static_cast<std::uint32_t>(run.size())});
  }
  message.last = true;
  out.push(std::move(message));
}

TransferOutcome DlcpReceiver::event(const std::optional<Error>& error, Time now) const {
  TransferOutcome event;
  event.handle = handle_;
  event.direction = Direction::kReceive;
  event.key = spec_.key;
  event.cookie = spec_.cookie;
  event.fail_with(error);
  event.segments = partition_.segment_count();
  event.arrived = arrived();
  event.retransmissions = asked_;
  event.rounds = round_;
  event.started = started_;
  event.ended = now;
  for (auto run = arrived_.missing_run(0); !run.empty(); run = arrived_.missing_run(run.end)) {
    event.missing.push_back(run);
  }
  return event;
}

}  // namespace thalweg::proto
