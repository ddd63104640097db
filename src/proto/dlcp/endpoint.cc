// The parts of DlcpEndpoint that serve both directions: checks, cancel, polls and timeouts.
// endpoint_send.cc and endpoint_receive.cc hold the two ends of a transfer, endpoint_grants.cc what
// grants add to both.
#include "proto/dlcp/endpoint.h"

#include <fmt/core.h>

#include <limits>
#include <utility>

#include "base/check.h"

namespace thalweg::proto {
namespace {

constexpr Duration kMaxDeadline = Duration::milliseconds(24LL * 3600 * 1000);

}  // namespace

DlcpEndpoint::DlcpEndpoint(const DlcpOptions& options, GrantScheduler* grants, std::uint32_t peer)
    : options_(options),
      grants_(grants),
      peer_(peer),
      rate_(options.rate, options.packet_overhead),
      path_(options.grace, options.rate),
      shares_(options.paths),
      next_transfer_(options.first_transfer) {
  witness_.fill(kNoWitness);
  const Status valid = options.validate();
  CHECK(valid.ok(), "{}", valid.error().message());
}

Result<tensor::Partition> DlcpEndpoint::check(const TransferSpec& spec,
                                              std::size_t in_flight) const {
  if (lost_) return lost_->within(fmt::format("the connection to {} is lost", options_.peer));
  if (in_flight >= options_.max_transfers) {
    return Error(ErrorCode::kNoResource,
                 fmt::format("{} transfers with {} are in flight: at most {} are allowed",
                             in_flight, options_.peer, options_.max_transfers));
  }
  if (!spec.bound.exact() && !is_floating(spec.type)) {
    return Error(fmt::format("a loss bound of {} on elements of type {}: integers must be exact",
                             spec.bound.fraction(), name_of(spec.type)));
  }
  if (spec.target.value_or(spec.bound) > spec.bound) {
    return Error(fmt::format("a loss target of {} above the loss bound of {}: at most the bound",
                             spec.target->fraction(), spec.bound.fraction()));
  }
  if (spec.deadline <= Duration() || spec.deadline > kMaxDeadline) {
    return Error(fmt::format("a deadline of {}: it must be above 0 and at most {}",
                             to_string(spec.deadline), to_string(kMaxDeadline)));
  }
  constexpr std::int64_t kMaxPayload = std::numeric_limits<std::uint16_t>::max();
  if (spec.payload > Bytes(kMaxPayload)) {
    return Error(fmt::format("a packet payload of {} bytes: at most {} are allowed",
                             spec.payload.count(), kMaxPayload));
  }
  return tensor::Partition::make(
      spec.elements, Bytes(static_cast<std::int64_t>(size_of(spec.type))), spec.payload);
}

std::string DlcpEndpoint::describe(Direction direction, std::uint64_t key) const {
  return fmt::format("{} {}, transfer {}",
                     direction == Direction::kSend ? "send to" : "receive from", options_.peer,
                     key);
}

void DlcpEndpoint::cancel(TransferHandle handle, std::string_view cause, Time now) {
  const auto has_handle = [&](const auto& transfer) { return transfer->handle() == handle; };
  const Error why(ErrorCode::kCancelled, fmt::format("cancelled: {}", cause));
  const auto sender = std::ranges::find_if(senders_, has_handle);
  if (sender != senders_.end()) {
    tell_receiver(**sender, wire::CancelReason::kCancelled, why.message());
    end_send(**sender, 0, why, now);
    return;
  }
  for (Slot& slot : slots_) {
    if (slot.receiver == nullptr || !has_handle(slot.receiver)) continue;
    tell_sender(slot, wire::CancelReason::kCancelled, why.message());
    fail_recv(slot, why, now);
    return;
  }
}

void DlcpEndpoint::connection_lost(std::string_view cause, Time now, ErrorCode code) {
  if (lost_) return;
  lost_ = Error(code, cause.empty() ? "connection lost" : std::string(cause));
  while (!senders_.empty()) end_send(*senders_.front(), 0, lost_, now);
  for (Slot& slot : slots_) {
    if (slot.receiver != nullptr) fail_recv(slot, *lost_, now);
    slot = Slot();
  }
  slots_in_use_ = 0;
  waiting_.clear();
  messages_.clear();
  wake_.reset();
}

void DlcpEndpoint::on_control(const wire::ControlMessage& message, Time now) {
  if (lost_) return;
  std::visit([&](const auto& m) { on_message(m, now); }, message);
}

bool DlcpEndpoint::poll_control(wire::ControlMessage& out) {
  if (!messages_.empty()) {
    out = messages_.pop();
    return true;
  }
  if (lost_) return false;
  const auto report = path_.take_report();
  if (!report) return false;
  ++counters_.reports_sent;
  out = *report;
  return true;
}

bool DlcpEndpoint::poll_event(TransferOutcome& out) {
  if (events_.empty()) return false;
  out = events_.pop();
  return true;
}

void DlcpEndpoint::on_timeout(Time now) {
  if (!wake_ || now < *wake_) return;
  wake_.reset();
  time_out_senders(now);
  time_out_receivers(now);
}

std::optional<Time> DlcpEndpoint::next_timer() const {
  return senders_.empty() && slots_in_use_ == 0 ? std::nullopt : wake_;
}

std::optional<Time> DlcpEndpoint::next_timeout() const {
  std::optional<Time> next = next_timer();
  if (!sending_.empty() && !unpaced())
    next = next ? std::min(*next, pacer_.free_at()) : pacer_.free_at();
  return next;
}

bool DlcpEndpoint::settled() const {
  return senders_.empty() && slots_in_use_ == 0 && messages_.empty() && events_.empty();
}

bool DlcpEndpoint::idle() const {
  return settled() && waiting_.empty() && (lost_ || !path_.report_due());
}

}  // namespace thalweg::proto
