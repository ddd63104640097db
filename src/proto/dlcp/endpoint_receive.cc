// The receiving end of transfers: rendezvous, placing data, requests for what is missing, finish.
#include <fmt/core.h>

#include <utility>

#include "base/check.h"
#include "proto/dlcp/endpoint.h"

namespace thalweg::proto {
namespace {

constexpr std::size_t kFirstSlots = 8;
// After so many rounds in a row of which nothing arrived, data is thought to vanish on its way.
constexpr std::uint32_t kVanished = 3;

// The peer's text with control characters replaced, so that an error cannot control a terminal.
std::string printable(std::string text) {
  const auto obeyed = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  std::ranges::replace_if(text, obeyed, '?');
  return text;
}

ErrorCode code_of(wire::CancelReason reason) {
  switch (reason) {
    case wire::CancelReason::kCancelled:
      return ErrorCode::kCancelled;
    case wire::CancelReason::kDeadline:
      return ErrorCode::kTimeout;
    case wire::CancelReason::kMismatch:
      return ErrorCode::kMismatch;
    case wire::CancelReason::kLimit:
      return ErrorCode::kNoResource;
  }
  return ErrorCode::kInternal;
}

std::string late_text(const DlcpReceiver& receiver) {
  const std::string deadline = to_string(receiver.spec().deadline);
  const std::int32_t segments = receiver.arrived() + receiver.missing();
  if (receiver.arrived() == 0) {
    return fmt::format("none of {} segments arrived within the receiver's deadline of {}", segments,
                       deadline);
  }
  return fmt::format("{} of {} segments are missing at the receiver's deadline of {}, {} may be",
                     receiver.missing(), segments, deadline,
                     receiver.spec().bound.allowed_missing(segments));
}

}  // namespace

Result<TransferHandle> DlcpEndpoint::start_recv(const TransferSpec& spec, Time now) {
  THALWEG_TRY(const tensor::Partition partition, check(spec, slots_in_use_));
  Slot& slot = take_slot();
  const TransferHandle handle = next_handle();
  slot.receiver = std::make_unique<DlcpReceiver>(handle, spec, partition, slot.transfer, now);
  ++receivers_;
  wire::ReadyMessage ready = slot.receiver->ready();
  if (grants_ != nullptr) ready.first = schedule(*slot.receiver, now);
  messages_.push(ready);
  wake_at(slot.receiver->deadline());
  return handle;
}

DlcpEndpoint::Slot& DlcpEndpoint::take_slot() {
  if ((slots_in_use_ + 1) * 2 > slots_.size()) {
    std::vector<Slot> old(std::max(kFirstSlots, slots_.size() * 2));
    old.swap(slots_);
    for (Slot& slot : old) {
      if (slot.in_use()) slot_of(slot.transfer) = std::move(slot);
    }
  }
  while (slot_of(next_transfer_).in_use()) ++next_transfer_;
  Slot& slot = slot_of(next_transfer_);
  slot.transfer = next_transfer_++;
  ++slots_in_use_;
  return slot;
}

DlcpEndpoint::Slot* DlcpEndpoint::find_slot(std::uint32_t transfer) {
  if (slots_.empty()) return nullptr;
  Slot& slot = slot_of(transfer);
  return slot.in_use() && slot.transfer == transfer ? &slot : nullptr;
}

Placement DlcpEndpoint::on_data(const wire::DataHeader& header, bool marked, Time now,
                                std::uint32_t path) {
  using Verdict = Placement::Verdict;
  // A packet that is too late to be useful still tells something about the path.
  path_.on_packet(header, marked, path, now);
  counters_.marks += marked ? 1 : 0;
  Slot* slot = find_slot(header.transfer);
  Placement placement{slot == nullptr ? Verdict::kStale : Verdict::kLate, {}, 0, Bytes()};
  if (slot != nullptr && slot->receiver != nullptr) {
    placement = slot->receiver->on_data(header, now);
  }
  switch (placement.verdict) {
    case Verdict::kPlace:
      ++counters_.segments_placed;
      note_progress(*slot->receiver, now);
      if (slot->receiver->mark_reached()) advance(*slot, now);
      break;
    case Verdict::kDuplicate:
      ++counters_.duplicate;
      break;
    case Verdict::kLate:
      ++counters_.late;
      break;
    case Verdict::kBadSegment:
      ++counters_.bad_segment;
      break;
    case Verdict::kBadLength:
      ++counters_.bad_length;
      break;
    case Verdict::kStale:
      ++counters_.stale;
      break;
  }
  if (header.sequence >= witness_[header.tag.priority]) time_out_receivers(now);
  return placement;
}

void DlcpEndpoint::on_data_end(std::uint64_t end_sequence, std::uint8_t queue, Time now,
                               std::uint32_t path) {
  path_.on_data_end(end_sequence, queue, path, now);
  if (end_sequence > witness_[queue]) time_out_receivers(now);
}

void DlcpEndpoint::on_message(const wire::StopMessage& message, Time now) {
  Slot* slot = find_slot(message.transfer);
  if (slot == nullptr || slot->receiver == nullptr) {
    ++counters_.stale_messages;
    return;
  }
  if (!slot->receiver->on_stop(message, now)) {
    ++counters_.bad_messages;
    return;
  }
  note_progress(*slot->receiver, now);
  advance(*slot, now);
}

void DlcpEndpoint::advance(Slot& slot, Time now) {
  DlcpReceiver& receiver = *slot.receiver;
  const Duration round_trip = round_trip_.value_or(options_.patience.initial_round_trip);
  using Action = DlcpReceiver::Action;
  Action action = receiver.action(path_, options_.patience, round_trip, now);
  if (action == Action::kAsk) {
    ++counters_.requests;
    receiver.ask(messages_, round_trip, now);
    action = receiver.action(path_, options_.patience, round_trip, now);
  }
  if (action == Action::kFinish) {
    finish(slot, now);
    return;
  }
  CHECK(action == Action::kWait);
  wake_at(receiver.wake());
  const auto awaited = receiver.awaited_witness();
  for (std::size_t queue = awaited ? awaited->queue : kPriorityCount; queue < witness_.size();
       ++queue) {
    witness_[queue] = std::min(witness_[queue], awaited->sequence);
  }
}

void DlcpEndpoint::finish(Slot& slot, Time now) {
  const DlcpReceiver& receiver = *slot.receiver;
  messages_.push(
      wire::FinishMessage{slot.transfer, static_cast<std::uint32_t>(receiver.arrived())});
  events_.push(receiver.event(std::nullopt, now));
  unschedule(receiver);
  slot.closing = true;
  slot.finished = now;
  slot.until = receiver.deadline();
  slot.receiver.reset();
  --receivers_;
  wake_at(slot.until);
}

void DlcpEndpoint::on_message(const wire::ConfirmMessage& message, Time now) {
  Slot* slot = find_slot(message.transfer);
  if (slot == nullptr) {
    ++counters_.stale_messages;
    return;
  }
  if (!slot->closing) {
    ++counters_.bad_messages;
    return;
  }
  const Duration sample = now - slot->finished;
  round_trip_ = round_trip_ ? (*round_trip_ * 7 + sample) / 8 : sample;
  *slot = Slot();
  --slots_in_use_;
}

void DlcpEndpoint::on_message(const wire::CancelMessage& message, Time now) {
  const Error cause(code_of(message.reason),
                    fmt::format("{} ended it: {}", options_.peer, printable(message.text)));
  if (message.from_receiver) {
    const auto waiting =
        std::ranges::find(waiting_, message.transfer, &wire::ReadyMessage::transfer);
    if (DlcpSender* sender = find_sender(message.transfer)) {
      end_send(*sender, 0, cause, now);
    } else if (waiting != waiting_.end()) {
      waiting_.erase(waiting);
    } else {
      ++counters_.stale_messages;
    }
    return;
  }
  Slot* slot = find_slot(message.transfer);
  if (slot == nullptr) {
    ++counters_.stale_messages;
  } else if (slot->closing) {
    // The sender gave up before the finish reached it, and will not confirm.
    *slot = Slot();
    --slots_in_use_;
  } else {
    fail_recv(*slot, cause, now);
  }
}

void DlcpEndpoint::tell_sender(const Slot& slot, wire::CancelReason reason, std::string text) {
  text.resize(std::min(text.size(), wire::kMaxCancelText));
  messages_.push(wire::CancelMessage{slot.transfer, true, reason, std::move(text)});
}

void DlcpEndpoint::fail_recv(Slot& slot, const Error& cause, Time now) {
  const DlcpReceiver& receiver = *slot.receiver;
  events_.push(
      receiver.event(cause.within(describe(Direction::kReceive, receiver.spec().key)), now));
  unschedule(receiver);
  slot = Slot();
  --slots_in_use_;
  --receivers_;
}

void DlcpEndpoint::time_out_receivers(Time now) {
  witness_.fill(kNoWitness);
  for (Slot& slot : slots_) {
    if (slot.closing) {
      if (now < slot.until) {
        wake_at(slot.until);
      } else {
        slot = Slot();
        --slots_in_use_;
      }
    } else if (slot.receiver != nullptr) {
      if (now < slot.receiver->deadline()) {
        advance(slot, now);
        continue;
      }
      const std::string text = late_text(*slot.receiver);
      tell_sender(slot, wire::CancelReason::kDeadline, text);
      fail_recv(slot, Error(ErrorCode::kTimeout, text), now);
    }
  }
}

bool DlcpEndpoint::data_vanishes() const {
  return std::ranges::any_of(slots_, [](const Slot& slot) {
    return slot.receiver != nullptr && slot.receiver->empty_rounds() >= kVanished;
  });
}

std::size_t DlcpEndpoint::transfers() const { return senders_.size() + receivers_; }

}  // namespace thalweg::proto
