#include "proto/atp/server.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "proto/atp/tensors.h"

namespace thalweg::proto {
namespace {

using Cause = AtpServerAction::Cause;
using Payload = AtpServerAction::Payload;

// The slots of this server: its share of two windows (see the header), rounded up to a power of
// two. Requires options that validate.
std::size_t ring_size(const AtpServerOptions& options) {
  CHECK(options.validate().ok(), "{}", options.validate().error().message());
  const std::size_t sequences = 2 * std::size_t{options.window};
  return std::bit_ceil((sequences + options.servers - 1) / options.servers);
}

}  // namespace

const char* name_of(Cause cause) {
  switch (cause) {
    case Cause::kStored:
      return "stored";
    case Cause::kAdded:
      return "added";
    case Cause::kReplaced:
      return "replaced";
    case Cause::kDuplicate:
      return "duplicate";
    case Cause::kOverlap:
      return "overlap";
    case Cause::kAnswered:
      return "answered";
    case Cause::kStale:
      return "stale";
    case Cause::kOutOfWindow:
      return "out-of-window";
    case Cause::kMismatch:
      return "mismatch";
    case Cause::kOverdue:
      return "overdue";
    case Cause::kUnproven:
      return "unproven";
  }
  return "?";
}

AtpServer::AtpServer(const AtpServerOptions& options)
    : options_(options),
      ring_(static_cast<std::uint32_t>(ring_size(options))),
      entries_(std::size_t{ring_} * (options.repetitions ? 2 : 1)),
      held_(entries_.size() * options.groups.size()) {}

AtpServerAction AtpServer::on_gradient(const wire::AtpHeader& header, Time now) {
  const AtpServerAction action = judge(header, now);
  ++counts_[static_cast<std::size_t>(action.cause)];
  return action;
}

// Checks everything but whether the sequence lies in the window.
bool AtpServer::fits(const wire::AtpHeader& header) const {
  return header.kind == wire::AtpKind::kGradient && header.job == options_.job &&
         header.group_count == options_.groups.size() && header.fan_in == fan_in_of(header.group) &&
         (header.workers & ~wire::atp_all(options_.groups[header.group])) == 0 &&
         header.sequence % options_.servers == options_.index &&
         header.elements <= options_.elements &&
         (options_.repetitions || !wire::atp_is_repetition(header.sequence));
}

AtpServerAction AtpServer::judge(const wire::AtpHeader& header, Time now) {
  AtpServerAction action;
  if (!fits(header)) return action;
  if (header.saturated && contributions(header) > 1) {
    action.cause = Cause::kUnproven;
    return action;
  }
  action.slot = slot_of(header.sequence);
  const Entry& entry = entries_[action.slot];
  if (entry.used && header.sequence < entry.sequence) {
    action.cause = Cause::kStale;
    return action;
  }
  if (entry.used && header.sequence > entry.sequence && !entry.complete) {
    action.cause = Cause::kOutOfWindow;
    return action;
  }
  if (!entry.used || header.sequence > entry.sequence) {
    begin(action.slot, header);
  } else if (entry.elements != header.elements || entry.exponent != header.exponent) {
    return action;
  } else if (entry.complete) {
    action.cause = header.resend ? Cause::kAnswered : Cause::kDuplicate;
    if (header.resend) {
      send({header.sequence, action.slot, header.groups, header.workers, header.group, false});
    }
    return action;
  }
  action = merge(action.slot, header, now);
  if (entry.overdue && header.resend && action.cause == Cause::kDuplicate) {
    action.cause = Cause::kOverdue;
    send_abort(action.slot);
  }
  return action;
}

void AtpServer::begin(std::uint32_t slot, const wire::AtpHeader& header) {
  Entry& entry = entries_[slot];
  entry = Entry();
  entry.sequence = header.sequence;
  entry.used = true;
  entry.elements = header.elements;
  entry.exponent = header.exponent;
  entry.next_exponent = header.next_exponent;
  entry.needed_exponent = header.needed_exponent;
  for (std::size_t g = 0; g < options_.groups.size(); ++g) held(slot, g) = 0;
  ++open_;
}

std::uint32_t AtpServer::brought(const wire::AtpHeader& header, std::size_t g) const {
  if ((header.groups & wire::atp_bit(static_cast<unsigned>(g))) != 0) return by_switches(g);
  return g == header.group ? header.workers : 0;
}

int AtpServer::contributions(const wire::AtpHeader& header) const {
  int count = 0;
  for (std::size_t g = 0; g < options_.groups.size(); ++g) {
    count += std::popcount(brought(header, g));
  }
  return count;
}

AtpServerAction AtpServer::merge(std::uint32_t slot, const wire::AtpHeader& header, Time now) {
  bool none_held = true;    // H is empty
  bool nothing_new = true;  // P within H
  bool disjoint = true;
  bool holds_all = true;  // H within P
  for (std::size_t g = 0; g < options_.groups.size(); ++g) {
    const std::uint32_t has = held(slot, g);
    const std::uint32_t gets = brought(header, g);
    none_held &= has == 0;
    nothing_new &= (gets & ~has) == 0;
    disjoint &= (gets & has) == 0;
    holds_all &= (has & ~gets) == 0;
  }
  AtpServerAction action;
  action.slot = slot;
  if (nothing_new || (!disjoint && !holds_all)) {
    action.cause = nothing_new ? Cause::kDuplicate : Cause::kOverlap;
    return action;
  }
  Entry& entry = entries_[slot];
  action.payload = holds_all ? Payload::kStore : Payload::kAdd;
  action.cause = none_held ? Cause::kStored : holds_all ? Cause::kReplaced : Cause::kAdded;
  entry.saturated = header.saturated || (entry.saturated && !holds_all);
  entry.check = header.check + (holds_all ? 0 : entry.check);
  entry.congested |= header.congested;
  entry.next_exponent = std::max(entry.next_exponent, header.next_exponent);
  entry.needed_exponent = std::max(entry.needed_exponent, header.needed_exponent);
  bool complete = true;
  for (std::size_t g = 0; g < options_.groups.size(); ++g) {
    held(slot, g) |= brought(header, g);
    complete &= held(slot, g) == wire::atp_all(options_.groups[g]);
  }
  action.completed = complete;
  if (!waiting_since_) waiting_since_ = now;
  if (complete) finish(slot, now);
  return action;
}

void AtpServer::finish(std::uint32_t slot, Time now) {
  entries_[slot].complete = true;
  --open_;
  waiting_since_.reset();
  if (open_ > 0) waiting_since_ = now;
  const auto groups = static_cast<unsigned>(options_.groups.size());
  send({entries_[slot].sequence, slot, wire::atp_all(groups), 0, 0, false});
}

// Drops the packet when too many wait because the driver does not poll: the workers ask again.
void AtpServer::send(const Waiting& waiting) {
  if (waiting_.size() < entries_.size()) waiting_.push(waiting);
}

void AtpServer::send_abort(std::uint32_t slot) {
  send({entries_[slot].sequence, slot, 0, 0, 0, true});
}

void AtpServer::mark_saturated(std::uint32_t slot) { entries_[slot].saturated = true; }

bool AtpServer::poll_transmit(AtpServerTransmit& out) {
  while (!waiting_.empty()) {
    const Waiting next = waiting_.pop();
    const Entry& entry = entries_[next.slot];
    if (entry.sequence != next.sequence || entry.complete == next.abort) continue;
    out.slot = next.slot;
    out.header = next.abort ? abort_of(next.slot) : parameter_of(next);
    return true;
  }
  return false;
}

wire::AtpHeader AtpServer::parameter_of(const Waiting& waiting) const {
  const Entry& entry = entries_[waiting.slot];
  wire::AtpHeader header;
  header.kind = wire::AtpKind::kParameter;
  header.job = options_.job;
  header.sequence = entry.sequence;
  header.groups = waiting.groups;
  header.workers = waiting.workers;
  header.group = waiting.group;
  header.fan_in = fan_in_of(waiting.group);
  header.group_count = static_cast<std::uint8_t>(options_.groups.size());
  header.exponent = entry.exponent;
  header.next_exponent = entry.next_exponent;
  header.needed_exponent = entry.needed_exponent;
  header.elements = entry.elements;
  header.congested = entry.congested;
  header.saturated = entry.saturated;
  header.check = entry.check;
  header.keyed = options_.keyed;
  return header;
}

wire::AtpHeader AtpServer::abort_of(std::uint32_t slot) const {
  wire::AtpHeader header;
  header.kind = wire::AtpKind::kAbort;
  header.job = options_.job;
  header.sequence = entries_[slot].sequence;
  header.group_count = static_cast<std::uint8_t>(options_.groups.size());
  header.fan_in = options_.groups[0];
  header.keyed = options_.keyed;
  for (std::size_t g = 0; g < options_.groups.size(); ++g) {
    const std::uint32_t all = wire::atp_all(options_.groups[g]);
    const std::uint32_t missing = all & ~held(slot, g);
    if (missing == all) {
      header.groups |= wire::atp_bit(static_cast<unsigned>(g));
    } else if (missing != 0 && header.workers == 0) {
      header.group = static_cast<std::uint8_t>(g);
      header.fan_in = options_.groups[g];
      header.workers = missing;
    }
  }
  return header;
}

std::optional<Time> AtpServer::next_timeout() const {
  if (!waiting_since_) return std::nullopt;
  return *waiting_since_ + options_.deadline;
}

// The abort names the oldest open sequence, since all workers wait for it: those with small windows
// may hold back later ones until it is complete.
void AtpServer::on_timeout(Time now) {
  if (!waiting_since_ || now < *waiting_since_ + options_.deadline) return;
  waiting_since_.reset();
  std::optional<std::uint32_t> oldest;
  for (std::uint32_t slot = 0; slot < entries_.size(); ++slot) {
    const Entry& entry = entries_[slot];
    if (!entry.used || entry.complete) continue;
    if (!oldest ||
        wire::atp_first_time(entry.sequence) < wire::atp_first_time(entries_[*oldest].sequence)) {
      oldest = slot;
    }
  }
  CHECK(oldest);
  Entry& entry = entries_[*oldest];
  entry.overdue = true;
  send_abort(*oldest);
  events_.push({fmt::format("job {}: server {}: sequence {} waits for {} for workers: {}",
                            options_.job, options_.index, entry.sequence,
                            to_string(options_.deadline), missing_workers(abort_of(*oldest)))});
}

bool AtpServer::poll_event(AtpServerFailure& out) {
  if (events_.empty()) return false;
  out = events_.pop();
  return true;
}

void AtpServer::encode_state(std::string& out) const {
  out += 's';
  for (std::uint32_t slot = 0; slot < entries_.size(); ++slot) {
    const Entry& entry = entries_[slot];
    if (!entry.used) {
      out += '-';
      continue;
    }
    out += fmt::format("{}{}{}{},{},{:x}:", entry.sequence, entry.complete ? '!' : ':',
                       entry.overdue ? '?' : ':', entry.elements, entry.exponent, entry.check);
    for (std::size_t g = 0; g < options_.groups.size(); ++g)
      out += fmt::format("{},", held(slot, g));
  }
}

}  // namespace thalweg::proto
