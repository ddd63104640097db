#include "switch/aggregation/aggregate.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/prng.h"

namespace thalweg::switches {
namespace {

using Cause = AggregateAction::Cause;
using Emit = AggregateAction::Emit;
using Payload = AggregateAction::Payload;

}  // namespace

Status AggregateOptions::validate() const {
  constexpr std::uint32_t kMostSlots = 1U << 26;
  if (slots < 1 || slots > kMostSlots) {
    return Error(fmt::format("slots = {}: must be from 1 to {}", slots, kMostSlots));
  }
  if (slot_elements < 1 || slot_elements > wire::kAtpMostElements) {
    return Error(fmt::format("slot_elements = {}: must be from 1 to {}", slot_elements,
                             wire::kAtpMostElements));
  }
  if (lifetime <= Duration()) {
    return Error(fmt::format("lifetime = {}: must be above 0", to_string(lifetime)));
  }
  return ok_status();
}

AggregateTable::AggregateTable(const AggregateOptions& options)
    : options_(options), slots_(options.slots) {
  CHECK(options.validate().ok(), "{}", options.validate().error().message());
}

Status AggregateTable::add_job(const AggregateJob& job) {
  if (job.window == 0) return Error(fmt::format("window = 0 of job {}: must be above 0", job.id));
  if (jobs_.size() >= kMostJobs) {
    return Error(fmt::format("job {}: {} jobs are here, the most allowed", job.id, kMostJobs));
  }
  const auto place = std::ranges::lower_bound(jobs_, job.id, {}, &Job::id);
  if (place != jobs_.end() && place->about.id == job.id) {
    return Error(fmt::format("job {} is here already", job.id));
  }
  const std::size_t slots = slots_.size();
  jobs_.insert(place, Job{job, first_slot(job, slots), slots_between(job, slots), {}});
  return ok_status();
}

std::uint64_t AggregateTable::first_slot(const AggregateJob& job, std::size_t slots) {
  return mix_bits(job.id) % slots;
}

std::uint64_t AggregateTable::slots_between(const AggregateJob& job, std::size_t slots) {
  const auto places =
      static_cast<std::size_t>(std::popcount(job.groups)) + (job.second_level ? 1 : 0);
  return slots / std::max<std::size_t>(places, 1);
}

bool AggregateTable::remove_job(std::uint32_t id) {
  Job* const job = find(id);
  if (job == nullptr) return false;
  for (Slot& slot : slots_) {
    if (slot.members != 0 && slot.job == id) free(slot, *job);
  }
  jobs_.erase(jobs_.begin() + (job - jobs_.data()));
  last_job_ = 0;
  return true;
}

AggregateTable::Job* AggregateTable::find(std::uint32_t id) {
  if (last_job_ < jobs_.size() && jobs_[last_job_].about.id == id) return &jobs_[last_job_];
  const auto place = std::ranges::lower_bound(jobs_, id, {}, &Job::id);
  if (place == jobs_.end() || place->about.id != id) return nullptr;
  last_job_ = static_cast<std::size_t>(place - jobs_.begin());
  return &*place;
}

const AggregateCounters* AggregateTable::counters(std::uint32_t job) const {
  const auto place = std::ranges::lower_bound(jobs_, job, {}, &Job::id);
  return place == jobs_.end() || place->about.id != job ? nullptr : &place->counters;
}

// If sequences are not hashed, the places of a job at this switch lie as far apart as possible,
// since the sequences of all places advance together.
std::uint32_t AggregateTable::index_of(const Job& job, std::uint64_t sequence,
                                       std::uint8_t place) const {
  if (options_.hash_sequences) {
    const std::uint64_t whose = std::uint64_t{job.about.id} << 8 | place;
    return static_cast<std::uint32_t>(mix_bits(mix_bits(whose) + sequence) % slots_.size());
  }
  const std::uint32_t earlier =
      place == kSecondLevelPlace ? job.about.groups : job.about.groups & (wire::atp_bit(place) - 1);
  const std::uint64_t begin =
      job.start + static_cast<std::uint64_t>(std::popcount(earlier)) * job.stride;
  return static_cast<std::uint32_t>((begin + sequence) % slots_.size());
}

bool AggregateTable::serves(const Slot& slot, const wire::AtpHeader& header, std::uint8_t place) {
  return slot.members != 0 && slot.sequence == header.sequence && slot.job == header.job &&
         slot.place == place;
}

// The steps are those of the paper's figure 4.
AggregateAction AggregateTable::on_gradient(wire::AtpHeader& header, Time now) {
  Job* const job = find(header.job);
  AggregateCounters& counters = job == nullptr ? unknown_ : job->counters;
  const AggregateAction action = job == nullptr ? AggregateAction() : decide(*job, header, now);
  ++counters.packets[static_cast<std::size_t>(action.cause)];
  return action;
}

// A sender's packets arrive in order. While the slot of the sequence before waits for others, too,
// nobody else knows of the loss.
std::optional<wire::AtpHeader> AggregateTable::missing_before(const wire::AtpHeader& header,
                                                              const std::optional<OwnServer>& own) {
  if (header.kind != wire::AtpKind::kGradient || header.level != wire::kAtpFirstLevel ||
      header.resend || header.collision || options_.reordering == 0 ||
      header.sequence < options_.reordering) {
    return std::nullopt;
  }
  Job* const job = find(header.job);
  if (job == nullptr || (job->about.groups & wire::atp_bit(header.group)) == 0) {
    return std::nullopt;
  }
  if (own && (header.sequence - options_.reordering) % own->servers == own->index) {
    return std::nullopt;
  }
  wire::AtpHeader missing;
  missing.kind = wire::AtpKind::kMissing;
  missing.job = header.job;
  missing.sequence = header.sequence - options_.reordering;
  missing.workers = header.workers;
  missing.group = header.group;
  missing.fan_in = header.fan_in;
  missing.group_count = header.group_count;
  missing.keyed = header.keyed;
  const Slot& slot = slots_[index_of(*job, missing.sequence, header.group)];
  if (!serves(slot, missing, header.group) || (slot.members & header.workers) != 0) {
    return std::nullopt;
  }
  ++job->counters.reported;
  return missing;
}

AggregateAction AggregateTable::decide(Job& job, wire::AtpHeader& header, Time now) {
  if (header.kind != wire::AtpKind::kGradient) {
    AggregateAction drop;
    drop.cause = Cause::kBadKind;
    return drop;
  }
  // Step 3: the edge-switch identifier says which fan-in and which set apply here.
  const bool first = header.level == wire::kAtpFirstLevel;
  const bool here = first ? (job.about.groups & wire::atp_bit(header.group)) != 0
                          : header.level == wire::kAtpSecondLevel && job.about.second_level;
  if (!here) return {.emit = Emit::kPacket, .cause = Cause::kNotHere};
  if (header.collision) return pass_on(header, Cause::kFlagged);
  if ((first ? header.fan_in : header.group_count) == 1) return pass_on(header, Cause::kAlone);

  const std::uint8_t place = first ? header.group : kSecondLevelPlace;
  Slot& slot = slots_[index_of(job, header.sequence, place)];
  const bool ours = serves(slot, header, place);  // step 1
  if (ours && differs(slot, header)) {
    AggregateAction drop;
    drop.cause = Cause::kMismatch;
    return drop;
  }
  if (header.resend) return ours ? flush(job, slot, header) : pass_on(header, Cause::kResent);
  if (ours) {
    slot.touched = now;
    return aggregate(slot, header);
  }
  if (header.elements > options_.slot_elements) return pass_on(header, Cause::kTooLarge);
  if (slot.members != 0 && !reclaim(slot, header, job.about.window, now)) {
    return pass_on(header, Cause::kCollision);
  }
  if (job.about.slot_limit != 0 && job.counters.slots >= job.about.slot_limit) {
    return pass_on(header, Cause::kLimited);
  }
  return claim(job, slot, header, now);
}

// In a group with a worker that is apart, wrong packets could bring more contributions than fit.
bool AggregateTable::differs(const Slot& slot, const wire::AtpHeader& header) {
  const bool second = slot.place == kSecondLevelPlace;
  const std::uint8_t fan_in = second ? header.group_count : header.fan_in;
  const std::uint32_t together = slot.members | (second ? header.groups : header.workers);
  return slot.fan_in != fan_in || slot.elements != header.elements ||
         slot.exponent != header.exponent || std::popcount(together) > fan_in;
}

// The packet goes on with its own elements. The collision flag keeps it from being aggregated at
// the next level. A retransmission needs no flag, since it never claims a slot.
AggregateAction AggregateTable::pass_on(wire::AtpHeader& header, Cause cause) {
  const bool first = header.level == wire::kAtpFirstLevel;
  ++header.level;
  if (first && wire::atp_whole(header.workers, header.fan_in)) {
    header.groups = wire::atp_bit(header.group);
    header.workers = 0;
  }
  if (cause != Cause::kResent && cause != Cause::kAlone) header.collision = true;
  return {.emit = Emit::kPacket, .cause = cause};
}

AggregateAction AggregateTable::claim(Job& job, Slot& slot, wire::AtpHeader& header, Time now) {
  slot.sequence = header.sequence;
  slot.touched = now;
  slot.job = header.job;
  const bool first = header.level == wire::kAtpFirstLevel;
  slot.place = first ? header.group : kSecondLevelPlace;
  slot.members = first ? header.workers : header.groups;
  slot.fan_in = first ? header.fan_in : header.group_count;
  slot.elements = header.elements;
  slot.exponent = header.exponent;
  slot.next_exponent = header.next_exponent;
  slot.needed_exponent = header.needed_exponent;
  slot.congested = header.congested;
  slot.saturated = header.saturated;
  slot.check = header.check;
  ++in_use_;
  AggregateCounters& counters = job.counters;
  counters.most_slots = std::max(counters.most_slots, ++counters.slots);
  AggregateAction action{.payload = Payload::kStore, .cause = Cause::kStored};
  action.slot = number_of(slot);
  if (wire::atp_whole(slot.members, slot.fan_in)) emit_sum(slot, header, action, Cause::kCompleted);
  return action;
}

// Steps 4 to 6: a contribution that the slot has is dropped, a new one added; the last sends the
// sum on. The slot stays until the parameter packet, so that retransmissions can flush the sum.
AggregateAction AggregateTable::aggregate(Slot& slot, wire::AtpHeader& header) {
  const std::uint32_t members = slot.place == kSecondLevelPlace ? header.groups : header.workers;
  AggregateAction action;
  action.slot = number_of(slot);
  if ((members & ~slot.members) == 0) {  // step 4
    action.cause = Cause::kDuplicate;
    return action;
  }
  if ((members & slot.members) != 0) return pass_on(header, Cause::kOverlap);
  action.payload = Payload::kAdd;
  action.cause = Cause::kAdded;
  slot.members |= members;  // step 5
  take_marks(slot, header);
  if (wire::atp_whole(slot.members, slot.fan_in)) emit_sum(slot, header, action, Cause::kCompleted);
  return action;  // step 6
}

// Steps 7 to 10: a retransmission frees its slot and takes the sum along, with its own contribution
// added if it was missing. At the second level the packet may hold a part of a group; the emitted
// header then names that part beside the slot's whole groups.
AggregateAction AggregateTable::flush(Job& job, Slot& slot, wire::AtpHeader& header) {
  const bool second = slot.place == kSecondLevelPlace;
  const std::uint32_t own = wire::atp_bit(header.group);
  const std::uint32_t members = second ? header.groups : header.workers;
  const bool part = second && header.workers != 0;
  const bool within = (members & ~slot.members) == 0 && (!part || (slot.members & own) != 0);
  const bool disjoint = (members & slot.members) == 0 && (!part || (slot.members & own) == 0);
  if ((second && options_.pass_second_level_resends) || (!within && !disjoint)) {
    ++job.counters.discarded;
    free(slot, job);                         // step 10
    return pass_on(header, Cause::kResent);  // step 7
  }
  AggregateAction action;
  action.slot = number_of(slot);
  action.freed = true;
  if (disjoint) {
    action.payload = Payload::kAdd;
    slot.members |= members;
    take_marks(slot, header);
  }
  const std::uint32_t partly = part && disjoint ? header.workers : 0;
  emit_sum(slot, header, action, Cause::kFlushed);  // steps 8 and 9
  if (second) header.workers = partly;
  if (!wire::atp_whole(slot.members, slot.fan_in)) ++job.counters.partial_sums;
  free(slot, job);  // step 10
  return action;
}

void AggregateTable::take_marks(Slot& slot, const wire::AtpHeader& header) {
  slot.congested |= header.congested;
  slot.saturated |= header.saturated;
  slot.check += header.check;
  slot.next_exponent = std::max(slot.next_exponent, header.next_exponent);
  slot.needed_exponent = std::max(slot.needed_exponent, header.needed_exponent);
}

// Makes the header that of the slot's sum, headed for the next level.
void AggregateTable::emit_sum(const Slot& slot, wire::AtpHeader& header, AggregateAction& action,
                              Cause cause) {
  action.emit = Emit::kSum;
  action.cause = cause;
  ++header.level;
  header.congested |= slot.congested;
  header.saturated = slot.saturated;
  header.check = slot.check;
  header.next_exponent = slot.next_exponent;
  header.needed_exponent = slot.needed_exponent;
  const bool whole_group =
      slot.place != kSecondLevelPlace && wire::atp_whole(slot.members, slot.fan_in);
  if (slot.place == kSecondLevelPlace) {
    header.groups = slot.members;
    header.workers = 0;
  } else {
    header.groups = whole_group ? wire::atp_bit(slot.place) : 0;
    header.workers = whole_group ? 0 : slot.members;
  }
}

// Frees a slot that its owner no longer needs: one unused for its lifetime, or one of the same job
// whose sequence is so far back that every worker has its sum (see proto/atp/server.h).
bool AggregateTable::reclaim(Slot& slot, const wire::AtpHeader& header, std::uint32_t window,
                             Time now) {
  Job* const owner = find(slot.job);
  CHECK(owner != nullptr, "a slot of job {}, which is not here", slot.job);
  const bool past = slot.job == header.job && header.sequence > slot.sequence &&
                    header.sequence - slot.sequence >= 2 * std::uint64_t{window};
  if (!past && now - slot.touched < options_.lifetime) return false;
  ++(past ? owner->counters.reclaimed : owner->counters.expired);
  free(slot, *owner);
  return true;
}

// Step 2: the parameter packet frees the slots that its sequence holds here.
AggregateAction AggregateTable::on_parameter(const wire::AtpHeader& header) {
  Job* const job = find(header.job);
  AggregateAction action;
  if (job == nullptr) {
    ++unknown_.packets[static_cast<std::size_t>(action.cause)];
    return action;
  }
  action.emit = Emit::kPacket;
  action.cause = Cause::kUnneeded;
  const auto release = [&](std::uint8_t place) {
    Slot& slot = slots_[index_of(*job, header.sequence, place)];
    if (!serves(slot, header, place)) return;
    free(slot, *job);
    action.cause = Cause::kFreed;
  };
  if (header.kind == wire::AtpKind::kParameter) {
    for (std::uint32_t rest = job->about.groups; rest != 0; rest &= rest - 1) {
      release(static_cast<std::uint8_t>(std::countr_zero(rest)));
    }
    if (job->about.second_level) release(kSecondLevelPlace);
  } else if (header.kind != wire::AtpKind::kAbort) {
    action.emit = Emit::kNothing;
    action.cause = Cause::kBadKind;
  }
  ++job->counters.packets[static_cast<std::size_t>(action.cause)];
  return action;
}

void AggregateTable::mark_saturated(std::uint32_t slot) { slots_[slot].saturated = true; }

void AggregateTable::free(Slot& slot, Job& owner) {
  slot.members = 0;
  --in_use_;
  --owner.counters.slots;
}

void AggregateTable::sweep(Time now, std::uint32_t count) {
  for (std::uint32_t i = 0; i < std::min(count, options_.slots); ++i) {
    Slot& slot = slots_[cursor_];
    cursor_ = cursor_ + 1 == options_.slots ? 0 : cursor_ + 1;
    if (slot.members == 0 || now - slot.touched < options_.lifetime) continue;
    Job* const owner = find(slot.job);
    CHECK(owner != nullptr);
    ++owner->counters.expired;
    free(slot, *owner);
  }
}

void AggregateTable::restart() {
  std::ranges::fill(slots_, Slot());
  for (Job& job : jobs_) job.counters.slots = 0;
  in_use_ = 0;
}

void AggregateTable::encode_state(std::string& out) const {
  out += 'a';
  for (const Slot& slot : slots_) {
    if (slot.members == 0) {
      out += '-';
      continue;
    }
    out += fmt::format("{},{},{},{},{},{},{},{:x};", slot.job, slot.sequence, slot.place,
                       slot.members, slot.fan_in, slot.elements, slot.exponent, slot.check);
  }
}

}  // namespace thalweg::switches
