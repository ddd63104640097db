#include "proto/dlcp/sender.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/prng.h"

namespace thalweg::proto {
namespace {

// A batch gathers the segments of one tag from the next kGatherWindow batches' worth of unsent
// segments: with two tags mixed evenly or three to one, batches are still full.
constexpr std::uint32_t kGatherWindow = 4;

}  // namespace

DlcpSender::DlcpSender(TransferHandle handle, const TransferSpec& spec,
                       const tensor::Partition& partition, TagSource tags, Time now)
    : handle_(handle),
      spec_(spec),
      partition_(partition),
      tags_(std::move(tags)),
      started_(now),
      sent_(static_cast<std::size_t>(partition.segment_count())) {
  if (!spec.gradual) return;
  offered_ = sent_;
  for (std::size_t i = 0; i < sent_.size(); ++i) sent_.set(i);
}

std::size_t first_segment(std::uint32_t transfer, std::size_t segments, LossBound bound) {
  if (bound.exact()) return 0;
  // Steps of the golden ratio: successive transfers begin far apart, and over time everywhere.
  constexpr std::uint32_t kGolden = 0x9e37'79b9;
  const std::uint32_t turn = transfer * kGolden;
  return static_cast<std::size_t>((std::uint64_t{turn} * segments) >> 32);
}

void DlcpSender::begin(std::uint32_t transfer, std::uint32_t first) {
  CHECK(state_ == State::kWaiting);
  transfer_ = transfer;
  state_ = State::kSending;
  granted_ = first;
  cursor_ = first_segment(transfer, sent_.size(), spec_.bound);
}

void DlcpSender::offer(Bitmap::Run segments) {
  CHECK(segments.begin <= segments.end && segments.end <= offered_.size());
  for (std::size_t i = segments.begin; i < segments.end; ++i) {
    if (offered_.set(i)) sent_.clear(i);
  }
}

bool DlcpSender::on_grant(std::uint32_t segments) {
  if (!scheduled() || segments > sent_.size()) return false;
  granted_ = std::max(granted_, segments);
  return true;
}

std::uint32_t DlcpSender::allowance() const {
  if (!data_left()) return 0;
  const auto left = static_cast<std::uint32_t>(sent_.size() - sent_.count());
  if (round_ > 0 || !scheduled()) return left;
  return std::min(left, granted_ - std::min(granted_, taken_));
}

wire::WantMessage DlcpSender::want(bool busy) const { return {transfer_, taken_, granted_, busy}; }

SendKey DlcpSender::key(const TransferOrder& order, Bandwidth line_rate, std::uint64_t seed) const {
  // A receiver that asked has all but a few segments, and others may wait for the whole tensor.
  SendKey key;
  key.first_time = round_ == 0;
  key.urgency = order.by_urgency ? spec_.urgency : 0;
  const std::int32_t segments = partition_.segment_count();
  const std::int64_t needed = segments - spec_.bound.allowed_missing(segments);
  const std::int64_t left = std::max<std::int64_t>(needed - std::int64_t{taken_}, 0);
  key.score = order.score(left * partition_.segment_size().count(), started_, line_rate);
  const auto number = static_cast<std::uint64_t>(handle_);
  key.tie = order.by_size ? mix_bits(seed + number * kGoldenStep) : number;
  return key;
}

void DlcpSender::take(std::uint32_t limit, std::uint64_t first_sequence, Time now, DataBatch& out) {
  CHECK(may_send() && limit > 0);
  limit = std::min({limit, DataBatch::kMaxSegments, allowance()});
  const auto index = [](std::size_t i) { return SegmentIndex(static_cast<std::int32_t>(i)); };
  std::size_t first = sent_.next_missing(cursor_);
  if (first == sent_.size()) first = sent_.next_missing(0);
  const SegmentTag tag = tags_.tag(index(first));
  std::size_t last = first;
  std::uint32_t looked_at = 0;
  out.count = 0;
  for (std::size_t next = first;
       next < sent_.size() && out.count < limit && looked_at < kGatherWindow * limit;
       next = sent_.next_missing(next + 1), ++looked_at) {
    if (next != first && tags_.tag(index(next)) != tag) continue;
    sent_.set(next);
    out.segments[out.count++] = static_cast<std::uint32_t>(next);
    last = next;
  }
  cursor_ = first + 1;
  last_sent_us_ = wire::wire_clock(now);
  queue_ = std::max(queue_, tag.priority);

  const tensor::Segment segment = partition_.segment(index(first));
  out.handle = handle_;
  out.cookie = spec_.cookie;
  out.transfer = transfer_;
  out.first_offset = segment.offset;
  out.segment_length = segment.length;
  out.last_length = partition_.segment(index(last)).length;
  out.first_sequence = first_sequence;
  out.sent_us = last_sent_us_;
  out.tag = tag;
  out.retransmission = round_ > 0;
  if (out.retransmission) {
    retransmissions_ += out.count;
  } else {
    taken_ += out.count;
  }
}

wire::StopMessage DlcpSender::stop(std::uint64_t end_sequence) {
  CHECK(round_over());
  state_ = State::kStopped;
  return {transfer_, round_, end_sequence, last_sent_us_, queue_};
}

bool DlcpSender::allowed(const wire::ResendMessage& message) const {
  if (state_ != State::kStopped || message.round != round_ + 1) return false;
  const auto segments = static_cast<std::uint32_t>(partition_.segment_count());
  const auto inside = [&](const wire::SegmentRange& range) {
    return range.count > 0 && range.first < segments && range.count <= segments - range.first;
  };
  return !message.ranges.empty() && std::ranges::all_of(message.ranges, inside);
}

bool DlcpSender::on_resend(const wire::ResendMessage& message) {
  if (!allowed(message)) return false;
  for (const wire::SegmentRange& range : message.ranges) {
    for (std::size_t i = 0; i < range.count; ++i) sent_.clear(range.first + i);
  }
  if (message.last) {
    ++round_;
    cursor_ = 0;
    queue_ = 0;
    state_ = State::kSending;
  }
  return true;
}

TransferOutcome DlcpSender::event(std::int32_t arrived, const std::optional<Error>& error,
                                  Time now) const {
  TransferOutcome event;
  event.handle = handle_;
  event.direction = Direction::kSend;
  event.key = spec_.key;
  event.cookie = spec_.cookie;
  event.fail_with(error);
  event.segments = partition_.segment_count();
  event.arrived = arrived;
  event.retransmissions = retransmissions_;
  event.rounds = round_;
  event.started = started_;
  event.ended = now;
  return event;
}

}  // namespace thalweg::proto
