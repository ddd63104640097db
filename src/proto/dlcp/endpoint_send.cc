// The sending end of transfers: rendezvous, data at the rate allowed, stop, retransmission.
#include <fmt/core.h>

#include <utility>

#include "base/check.h"
#include "proto/dlcp/endpoint.h"

namespace thalweg::proto {
namespace {

// The fields on which the two ends disagree, with both values; empty if they agree.
std::string mismatch(const DlcpSender& sender, const wire::ReadyMessage& ready) {
  std::string text;
  const auto compare = [&](const char* what, const auto& ours, const auto& theirs) {
    if (ours == theirs) return;
    text += fmt::format("{}{} {} at the sender, {} at the receiver", text.empty() ? "" : "; ", what,
                        ours, theirs);
  };
  const tensor::Partition& partition = sender.partition();
  compare("tensor bytes", static_cast<std::uint64_t>(partition.tensor_size().count()),
          ready.tensor_bytes);
  compare("segment bytes", static_cast<std::uint64_t>(partition.segment_size().count()),
          std::uint64_t{ready.segment_bytes});
  compare("element type", std::string_view(name_of(sender.spec().type)),
          std::string_view(name_of(ready.type)));
  compare("loss bound", sender.spec().bound.fraction(),
          LossBound::parts_per_billion(ready.bound_ppb).fraction());
  return text;
}

std::string late_send_text(const DlcpSender& sender) {
  const std::string deadline = to_string(sender.spec().deadline);
  switch (sender.state()) {
    case DlcpSender::State::kWaiting:
      return fmt::format("the receiver was not ready within the sender's deadline of {}", deadline);
    case DlcpSender::State::kSending:
      if (sender.unoffered() > 0) {
        return fmt::format("{} of {} segments were not complete at the sender's deadline of {}",
                           sender.unoffered(), sender.partition().segment_count(), deadline);
      }
      return fmt::format("not all was sent within the sender's deadline of {}", deadline);
    case DlcpSender::State::kStopped:
      return fmt::format("the receiver had not enough within the sender's deadline of {}",
                         deadline);
  }
  return {};
}

}  // namespace

Result<TransferHandle> DlcpEndpoint::start_send(const TransferSpec& spec, TagSource tags,
                                                Time now) {
  THALWEG_TRY(const tensor::Partition partition, check(spec, senders_.size()));
  if (!tags.fits(partition.segment_count())) {
    return Error(fmt::format("the number of tags is not that of the segments, {}",
                             partition.segment_count()));
  }
  const TransferHandle handle = next_handle();
  senders_.push_back(std::make_unique<DlcpSender>(handle, spec, partition, std::move(tags), now));
  sending_.reserve(senders_.size());
  DlcpSender& sender = *senders_.back();
  wake_at(sender.deadline());
  const auto ready = std::ranges::find(waiting_, spec.key, &wire::ReadyMessage::key);
  if (ready != waiting_.end()) {
    const wire::ReadyMessage message = *ready;
    waiting_.erase(ready);
    match(sender, message, now);
  }
  return handle;
}

void DlcpEndpoint::on_message(const wire::ReadyMessage& message, Time now) {
  const bool known = find_sender(message.transfer) != nullptr ||
                     std::ranges::find(waiting_, message.transfer, &wire::ReadyMessage::transfer) !=
                         waiting_.end();
  if (known) {
    ++counters_.bad_messages;
    return;
  }
  const auto wanted = std::ranges::find_if(senders_, [&](const auto& sender) {
    return sender->state() == DlcpSender::State::kWaiting && sender->spec().key == message.key;
  });
  if (wanted != senders_.end()) {
    match(**wanted, message, now);
  } else if (waiting_.size() < options_.max_transfers) {
    waiting_.push_back(message);
  } else {
    ++counters_.bad_messages;
    // A peer that ignores these answers gets no more of them.
    if (messages_.size() > std::size_t{4} * options_.max_transfers) return;
    messages_.push(
        wire::CancelMessage{message.transfer, false, wire::CancelReason::kLimit,
                            fmt::format("{} transfers wait for their sender: at most {} may",
                                        waiting_.size(), options_.max_transfers)});
  }
}

void DlcpEndpoint::match(DlcpSender& sender, const wire::ReadyMessage& ready, Time now) {
  sender.begin(ready.transfer, first_burst(sender, ready.first));
  const std::string difference = mismatch(sender, ready);
  if (!difference.empty()) {
    tell_receiver(sender, wire::CancelReason::kMismatch, difference);
    end_send(sender, 0, Error(ErrorCode::kMismatch, difference), now);
    return;
  }
  reset_rate(&RateControl::on_transfer, now);
  begin_round(sender);
  note_allowance(sender, now);
}

void DlcpEndpoint::reset_rate(void (RateControl::*reset)(), Time now) {
  const Bandwidth before = rate_.rate();
  (rate_.*reset)();
  pacer_.on_rate_change(now, before, rate_.rate());
}

void DlcpEndpoint::begin_round(DlcpSender& sender) {
  if (sender.round_over()) {
    messages_.push(sender.stop(next_sequence_));
    return;
  }
  if (sender.may_send()) start_sending(sender);
}

void DlcpEndpoint::offer(TransferHandle handle, Bitmap::Run segments, Time now) {
  const auto found = std::ranges::find_if(
      senders_, [&](const auto& sender) { return sender->handle() == handle; });
  if (found == senders_.end()) return;
  DlcpSender& sender = **found;
  CHECK(sender.spec().gradual, "segments of a transfer that is not gradual were offered");
  const bool could_send = sender.may_send();
  sender.offer(segments);
  if (!could_send && sender.may_send()) start_sending(sender);
  note_allowance(sender, now);
}

SendKey DlcpEndpoint::key_of(const DlcpSender& sender) const {
  return sender.key(options_.order, options_.rate.line_rate, options_.order_seed);
}

void DlcpEndpoint::start_sending(DlcpSender& sender) {
  const SendKey key = key_of(sender);
  const auto place =
      std::ranges::find_if(sending_, [&](const DlcpSender* other) { return key < key_of(*other); });
  sending_.insert(place, &sender);
}

std::optional<SendKey> DlcpEndpoint::next_key() const {
  if (sending_.empty()) return std::nullopt;
  return key_of(*sending_.front());
}

bool DlcpEndpoint::data_ready(Time now) const {
  return !sending_.empty() && (unpaced() || now >= pacer_.free_at());
}

bool DlcpEndpoint::poll_data(Time now, std::uint32_t max_segments, DataBatch& out) {
  if (!data_ready(now)) return false;
  DlcpSender& sender = *sending_.front();
  sender.take(std::min(max_segments, options_.burst_segments), next_sequence_, now, out);
  out.path = shares_.take(out.count, now);
  next_sequence_ += out.count;
  counters_.segments_sent += out.count;
  if (out.retransmission) counters_.segments_retransmitted += out.count;

  const Bytes full = out.segment_length + options_.packet_overhead;
  const Bytes size = full * (out.count - 1) + out.last_length + options_.packet_overhead;
  // A receiver that gives grants has no need of rate control.
  const Bandwidth rate = sender.scheduled() ? options_.rate.line_rate : rate_.rate();
  if (!unpaced()) pacer_.on_sent(now, size, full * options_.burst_segments, rate);
  if (!sender.may_send()) sending_.erase(sending_.begin());
  if (sender.round_over()) messages_.push(sender.stop(next_sequence_));
  note_allowance(sender, now);
  return true;
}

void DlcpEndpoint::on_message(const wire::ResendMessage& message, Time now) {
  DlcpSender* sender = find_sender(message.transfer);
  if (sender == nullptr) {
    ++counters_.stale_messages;
    return;
  }
  if (!sender->on_resend(message)) {
    ++counters_.bad_messages;
    return;
  }
  if (sender->state() != DlcpSender::State::kSending) return;
  reset_rate(&RateControl::on_retransmission, now);
  begin_round(*sender);
  note_allowance(*sender, now);
}

void DlcpEndpoint::on_message(const wire::FinishMessage& message, Time now) {
  DlcpSender* sender = find_sender(message.transfer);
  if (sender == nullptr) {
    ++counters_.stale_messages;
    return;
  }
  const std::int64_t segments = sender->partition().segment_count();
  const std::int64_t missing = segments - std::int64_t{message.arrived};
  if (missing < 0 ||
      missing > sender->spec().bound.allowed_missing(sender->partition().segment_count())) {
    ++counters_.bad_messages;
    return;
  }
  messages_.push(wire::ConfirmMessage{message.transfer});
  end_send(*sender, static_cast<std::int32_t>(message.arrived), std::nullopt, now);
}

void DlcpEndpoint::on_message(const wire::ReportMessage& message, Time now) {
  ++counters_.reports_received;
  rate_.on_report(message);
  if (options_.paths.learn) shares_.on_report(message, now);
}

DlcpSender* DlcpEndpoint::find_sender(std::uint32_t transfer) {
  const auto found = std::ranges::find_if(senders_, [&](const auto& sender) {
    return sender->state() != DlcpSender::State::kWaiting && sender->transfer() == transfer;
  });
  return found == senders_.end() ? nullptr : found->get();
}

void DlcpEndpoint::tell_receiver(const DlcpSender& sender, wire::CancelReason reason,
                                 std::string text) {
  if (sender.state() == DlcpSender::State::kWaiting) return;
  text.resize(std::min(text.size(), wire::kMaxCancelText));
  messages_.push(wire::CancelMessage{sender.transfer(), false, reason, std::move(text)});
}

void DlcpEndpoint::end_send(DlcpSender& sender, std::int32_t arrived,
                            const std::optional<Error>& cause, Time now) {
  std::optional<Error> error;
  if (cause) error = cause->within(describe(Direction::kSend, sender.spec().key));
  events_.push(sender.event(arrived, error, now));
  std::erase(sending_, &sender);
  if (grants_ != nullptr) grants_->offer(-sender.waiting().offered);
  std::erase_if(senders_, [&](const auto& other) { return other.get() == &sender; });
}

void DlcpEndpoint::time_out_senders(Time now) {
  for (std::size_t i = 0; i < senders_.size();) {
    DlcpSender& sender = *senders_[i];
    if (now < sender.deadline()) {
      wake_at(sender.deadline());
      if (sender.blocked()) {
        if (now >= sender.waiting().ask_at) ask_for_grant(sender, false, now);
        wake_at(sender.waiting().ask_at);
      }
      ++i;
      continue;
    }
    const std::string text = late_send_text(sender);
    tell_receiver(sender, wire::CancelReason::kDeadline, text);
    end_send(sender, 0, Error(ErrorCode::kTimeout, text), now);
  }
}

}  // namespace thalweg::proto
