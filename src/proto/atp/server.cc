#include "proto/atp/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace thalweg {
namespace {

using Cause = AtpServerAction::Cause;
using Payload = AtpServerAction::Payload;

// Two windows of this server's share of the sequences (see the header), both ends rounded up.
std::size_t ring_size(const AtpServerOptions& options) {
  return std::bit_ceil(2 * std::size_t{options.window} / options.servers + 2);
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
    case Cause::kFailed:
      return "failed";
  }
  return "?";
}

AtpServer::AtpServer(const AtpServerOptions& options)
    : options_(options),
      entries_(ring_size(options)),
      held_(entries_.size() * options.groups.size()) {
  CHECK(options.validate().ok(), "{}", options.validate().error().message());
}

AtpServerAction AtpServer::on_gradient(const AtpHeader& header, Time now) {
  const AtpServerAction action = judge(header, now);
  ++counts_[static_cast<std::size_t>(action.cause)];
  return action;
}

// Everything but the sequence.
bool AtpServer::fits(const AtpHeader& header) const {
  return header.kind == AtpKind::kGradient && header.job == options_.job &&
         header.group_count == options_.groups.size() &&
         header.fan_in == options_.groups[header.group] &&
         header.sequence % options_.servers == options_.index &&
         header.elements <= options_.elements;
}

AtpServerAction AtpServer::judge(const AtpHeader& header, Time now) {
  AtpServerAction action;
  if (!fits(header)) return action;
  if (abort_) {
    abort_waiting_ = true;
    action.cause = Cause::kFailed;
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
    begin(action.slot, header, now);
  } else if (entry.elements != header.elements || entry.exponent != header.exponent) {
    return action;
  } else if (entry.complete) {
    action.cause = header.resend ? Cause::kAnswered : Cause::kDuplicate;
    if (header.resend) answer(action.slot, header);
    return action;
  }
  return merge(action.slot, header);
}

void AtpServer::begin(std::uint32_t slot, const AtpHeader& header, Time now) {
  Entry& entry = entries_[slot];
  entry = Entry();
  entry.sequence = header.sequence;
  entry.begun = now;
  entry.used = true;
  entry.elements = header.elements;
  entry.exponent = header.exponent;
  entry.next_exponent = header.next_exponent;
  for (std::size_t g = 0; g < options_.groups.size(); ++g) held(slot, g) = 0;
  ++open_;
  const Time due = now + options_.deadline;
  wake_ = wake_ ? std::min(*wake_, due) : due;
}

std::uint32_t AtpServer::brought(const AtpHeader& header, std::size_t g) const {
  if ((header.groups & atp_bit(static_cast<unsigned>(g))) != 0) return atp_all(options_.groups[g]);
  return g == header.group ? header.workers : 0;
}

AtpServerAction AtpServer::merge(std::uint32_t slot, const AtpHeader& header) {
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
  entry.congested |= header.congested;
  entry.next_exponent = std::max(entry.next_exponent, header.next_exponent);
  bool complete = true;
  for (std::size_t g = 0; g < options_.groups.size(); ++g) {
    held(slot, g) |= brought(header, g);
    complete &= held(slot, g) == atp_all(options_.groups[g]);
  }
  action.completed = complete;
  if (complete) finish(slot);
  return action;
}

void AtpServer::finish(std::uint32_t slot) {
  entries_[slot].complete = true;
  --open_;
  ++completed_;
  Waiting waiting;
  waiting.sequence = entries_[slot].sequence;
  waiting.slot = slot;
  waiting.groups = atp_all(static_cast<unsigned>(options_.groups.size()));
  send(waiting);
}

void AtpServer::answer(std::uint32_t slot, const AtpHeader& header) {
  send({header.sequence, slot, header.groups, header.workers, header.group});
}

// What is sent again while the driver does not poll is forgotten: the workers ask once more.
void AtpServer::send(const Waiting& waiting) {
  if (waiting_.size() < entries_.size()) waiting_.push(waiting);
}

void AtpServer::mark_saturated(std::uint32_t slot) { entries_[slot].saturated = true; }

bool AtpServer::poll_transmit(AtpServerTransmit& out) {
  if (abort_waiting_) {
    abort_waiting_ = false;
    out.header = *abort_;
    return true;
  }
  while (!waiting_.empty()) {
    const Waiting next = waiting_.pop();
    const Entry& entry = entries_[next.slot];
    if (entry.sequence != next.sequence) continue;
    out.slot = next.slot;
    out.header = AtpHeader();
    out.header.kind = AtpKind::kParameter;
    out.header.job = options_.job;
    out.header.sequence = entry.sequence;
    out.header.groups = next.groups;
    out.header.workers = next.workers;
    out.header.group = next.group;
    out.header.fan_in = options_.groups[next.group];
    out.header.group_count = static_cast<std::uint8_t>(options_.groups.size());
    out.header.exponent = entry.exponent;
    out.header.next_exponent = entry.next_exponent;
    out.header.elements = entry.elements;
    out.header.congested = entry.congested;
    out.header.saturated = entry.saturated;
    out.header.keyed = options_.keyed;
    return true;
  }
  return false;
}

void AtpServer::on_timeout(Time now) {
  if (!wake_ || now < *wake_ || abort_) return;
  wake_.reset();
  for (std::uint32_t slot = 0; slot < entries_.size(); ++slot) {
    const Entry& entry = entries_[slot];
    if (!entry.used || entry.complete) continue;
    const Time due = entry.begun + options_.deadline;
    if (now >= due) return fail(slot);
    wake_ = wake_ ? std::min(*wake_, due) : due;
  }
}

// Names who is missing to the driver, and to all workers.
void AtpServer::fail(std::uint32_t slot) {
  const std::uint64_t sequence = entries_[slot].sequence;
  AtpHeader abort;
  abort.kind = AtpKind::kAbort;
  abort.job = options_.job;
  abort.sequence = sequence;
  abort.group_count = static_cast<std::uint8_t>(options_.groups.size());
  abort.fan_in = options_.groups[0];
  abort.keyed = options_.keyed;
  std::string names;
  for (std::size_t g = 0; g < options_.groups.size(); ++g) {
    const std::uint32_t all = atp_all(options_.groups[g]);
    const std::uint32_t missing = all & ~held(slot, g);
    if (missing == all) {
      abort.groups |= atp_bit(static_cast<unsigned>(g));
    } else if (missing != 0 && abort.workers == 0) {
      abort.group = static_cast<std::uint8_t>(g);
      abort.fan_in = options_.groups[g];
      abort.workers = missing;
    }
    for (unsigned w = 0; w < options_.groups[g]; ++w) {
      if ((missing & atp_bit(w)) == 0) continue;
      names += fmt::format("{}{} of group {}", names.empty() ? "" : ", ", w, g);
    }
  }
  abort_ = abort;
  abort_waiting_ = true;
  wake_.reset();
  waiting_.clear();
  events_.push(
      {fmt::format("job {}: server {}: no contribution to sequence {} for {} from workers: {}",
                   options_.job, options_.index, sequence, to_string(options_.deadline), names)});
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
    out += fmt::format("{}{}", entry.sequence, entry.complete ? '!' : ':');
    for (std::size_t g = 0; g < options_.groups.size(); ++g)
      out += fmt::format("{},", held(slot, g));
  }
}

}  // namespace thalweg
