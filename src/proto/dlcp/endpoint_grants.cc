// What receiver grants add to both ends of a transfer (GrantScheduler explains them).
#include <algorithm>

#include "base/check.h"
#include "proto/dlcp/endpoint.h"

namespace thalweg::proto {

// Receivers.

std::uint32_t DlcpEndpoint::schedule(DlcpReceiver& receiver, Time now) {
  GrantScheduler::Incoming incoming;
  incoming.peer = peer_;
  incoming.transfer = receiver.transfer();
  incoming.segments = static_cast<std::uint32_t>(receiver.arrived() + receiver.missing());
  incoming.needed = static_cast<std::uint32_t>(receiver.needed());
  incoming.segment_bytes = std::max(receiver.segment_size(), Bytes(1)) + options_.packet_overhead;
  incoming.urgency = receiver.spec().urgency;
  const GrantScheduler::Ticket ticket = grants_->open(incoming, now);
  receiver.schedule(ticket);
  return grants_->first(ticket);
}

void DlcpEndpoint::note_progress(const DlcpReceiver& receiver, Time now) {
  if (!receiver.ticket()) return;
  const auto arrived = static_cast<std::uint32_t>(receiver.arrived());
  grants_->progress(*receiver.ticket(), arrived, std::max(arrived, receiver.reached()), now);
}

void DlcpEndpoint::unschedule(const DlcpReceiver& receiver) {
  if (receiver.ticket()) grants_->close(*receiver.ticket());
}

void DlcpEndpoint::on_message(const wire::WantMessage& message, Time now) {
  const Slot* slot = find_slot(message.transfer);
  if (slot == nullptr || slot->receiver == nullptr) {
    ++counters_.stale_messages;
    return;
  }
  const DlcpReceiver& receiver = *slot->receiver;
  const auto segments = static_cast<std::uint32_t>(receiver.arrived() + receiver.missing());
  if (!receiver.ticket() || message.granted > segments) {
    ++counters_.bad_messages;
    return;
  }
  grants_->want(*receiver.ticket(), message.sent, message.granted, message.busy, now);
}

// Senders.

// The receiver means its first burst for the peer. A transfer that is not the peer's only one sends
// one segment, by which the receiver sees it.
std::uint32_t DlcpEndpoint::first_burst(const DlcpSender& sender, std::uint32_t first) const {
  if (first == wire::kUngranted) return first;
  const auto others = [&](const auto& other) {
    return other.get() != &sender && other->state() == DlcpSender::State::kSending &&
           other->scheduled();
  };
  return std::ranges::any_of(senders_, others) ? std::min(first, 1U) : first;
}

void DlcpEndpoint::on_message(const wire::GrantMessage& message, Time now) {
  DlcpSender* sender = find_sender(message.transfer);
  if (sender == nullptr) {
    ++counters_.stale_messages;
    return;
  }
  const bool was_blocked = sender->blocked();
  if (!sender->on_grant(message.segments)) {
    ++counters_.bad_messages;
    return;
  }
  ++counters_.grants_received;
  if (was_blocked && sender->may_send()) start_sending(*sender);
  note_allowance(*sender, now);
}

void DlcpEndpoint::note_allowance(DlcpSender& sender, Time now) {
  if (!sender.scheduled()) return;
  DlcpSender::Waiting& waiting = sender.waiting();
  if (sender.blocked() && !waiting.blocked) {
    waiting.ask_after = options_.want.after;
    waiting.ask_at = now + waiting.ask_after;
    wake_at(waiting.ask_at);
  }
  waiting.blocked = sender.blocked();
  if (grants_ == nullptr) return;
  const std::int64_t offered =
      std::int64_t{sender.allowance()} * sender.partition().segment_size().count();
  grants_->offer(offered - waiting.offered);
  waiting.offered = offered;
  if (waiting.told_busy || !sender.may_send() || !grants_->busy()) return;
  waiting.told_busy = true;
  ask_for_grant(sender, true, now);
}

void DlcpEndpoint::ask_for_grant(DlcpSender& sender, bool busy, Time now) {
  DlcpSender::Waiting& waiting = sender.waiting();
  ++counters_.wants_sent;
  messages_.push(sender.want(busy));
  if (busy) return;
  waiting.ask_after = std::min(waiting.ask_after * 2, options_.want.most);
  waiting.ask_at = now + waiting.ask_after;
}

}  // namespace thalweg::proto
