#include "sim/baselines/switchml_switch.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace thalweg::sim {
namespace {

using Cause = switches::AggregateAction::Cause;
using Emit = switches::AggregateAction::Emit;
using Payload = switches::AggregateAction::Payload;

}  // namespace

SwitchmlTable::SwitchmlTable(const switches::AggregateOptions& options)
    : options_(options), slots_(options.slots) {
  CHECK(options.validate().ok(), "{}", options.validate().error().message());
}

// Returns the first of `count` adjacent slots that belong to no job, or slots_.size() if there are
// none.
std::uint32_t SwitchmlTable::room_for(std::uint32_t count) const {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> taken;
  taken.reserve(jobs_.size());
  for (const Job& job : jobs_) {
    taken.emplace_back(job.first_slot, job.first_slot + 2 * job.about.pool);
  }
  std::ranges::sort(taken);
  std::uint32_t begin = 0;
  for (const auto& [first, end] : taken) {
    if (first - begin >= count) return begin;
    begin = end;
  }
  return options_.slots - begin >= count ? begin : options_.slots;
}

Status SwitchmlTable::add_job(const SwitchmlJob& job) {
  if (job.workers < 1 || job.workers > wire::kAtpMostWorkersPerGroup) {
    return Error(fmt::format("workers = {} of job {}: must be from 1 to {}", job.workers, job.id,
                             wire::kAtpMostWorkersPerGroup));
  }
  if (job.pool < 1 || job.pool > options_.slots / 2) {
    return Error(fmt::format("pool = {} of job {}: must be from 1 to {}, half the switch's slots",
                             job.pool, job.id, options_.slots / 2));
  }
  if (jobs_.size() >= kMostJobs) {
    return Error(fmt::format("job {}: {} jobs are here, the most allowed", job.id, kMostJobs));
  }
  const auto place = std::ranges::lower_bound(jobs_, job.id, {}, &Job::id);
  if (place != jobs_.end() && place->id() == job.id) {
    return Error(fmt::format("job {} is here already", job.id));
  }
  const std::uint32_t first = room_for(2 * job.pool);
  if (first == options_.slots) {
    return Error(fmt::format("pool = {} of job {}: no {} slots side by side are left of {}",
                             job.pool, job.id, 2 * job.pool, options_.slots));
  }
  jobs_.insert(place, Job{job, first, {}});
  std::fill_n(slots_.begin() + first, 2 * job.pool, Slot());
  return ok_status();
}

bool SwitchmlTable::remove_job(std::uint32_t id) {
  Job* const job = find(id);
  if (job == nullptr) return false;
  jobs_.erase(jobs_.begin() + (job - jobs_.data()));
  return true;
}

SwitchmlTable::Job* SwitchmlTable::find(std::uint32_t id) {
  const auto place = std::ranges::lower_bound(jobs_, id, {}, &Job::id);
  return place == jobs_.end() || place->id() != id ? nullptr : &*place;
}

const switches::AggregateCounters* SwitchmlTable::counters(std::uint32_t job) const {
  const auto place = std::ranges::lower_bound(jobs_, job, {}, &Job::id);
  return place == jobs_.end() || place->id() != job ? nullptr : &place->counters;
}

std::uint32_t SwitchmlTable::slots_in_use() const {
  std::uint32_t count = 0;
  for (const Job& job : jobs_) count += 2 * job.about.pool;
  return count;
}

switches::AggregateAction SwitchmlTable::on_update(wire::AtpHeader& header) {
  Job* const job = find(header.job);
  switches::AggregateAction action;
  if (job != nullptr) action = decide(*job, header);
  switches::AggregateCounters& counters = job == nullptr ? unknown_ : job->counters;
  ++counters.packets[static_cast<std::size_t>(action.cause)];
  return action;
}

switches::AggregateAction SwitchmlTable::decide(const Job& job, wire::AtpHeader& header) {
  switches::AggregateAction action;
  action.cause = Cause::kBadKind;
  if (header.kind != wire::AtpKind::kUpdate) return action;
  action.cause = Cause::kMismatch;
  if (header.fan_in != job.about.workers || header.group_count != 1 || header.groups != 0) {
    return action;
  }
  action.cause = Cause::kTooLarge;
  if (header.elements > options_.slot_elements) return action;
  const std::uint64_t place = header.sequence % (2 * std::uint64_t{job.about.pool});
  action.slot = job.first_slot + static_cast<std::uint32_t>(place);
  Slot& slot = slots_[action.slot];
  const std::uint32_t all = wire::atp_all(header.fan_in);
  if (slot.members != 0 && header.sequence < slot.sequence) {
    action.cause = Cause::kStale;
    return action;
  }
  if (slot.members == 0 || header.sequence > slot.sequence) {
    action.cause = Cause::kOutOfWindow;
    if (slot.members != 0 && slot.members != all) return action;
    slot = Slot();
    slot.sequence = header.sequence;
    slot.elements = header.elements;
    slot.exponent = header.exponent;
    slot.next_exponent = header.next_exponent;
    action.payload = Payload::kStore;
    action.cause = Cause::kStored;
  } else {
    action.cause = Cause::kMismatch;
    if (slot.elements != header.elements || slot.exponent != header.exponent) return action;
    if ((header.workers & ~slot.members) == 0) {
      action.cause = slot.members == all ? Cause::kRepeated : Cause::kDuplicate;
      if (slot.members != all) return action;
      action.emit = Emit::kSumToSender;
      make_result(slot, header, header.workers);
      return action;
    }
    action.cause = Cause::kOverlap;
    if ((header.workers & slot.members) != 0) return action;
    action.payload = Payload::kAdd;
    action.cause = Cause::kAdded;
  }
  slot.members |= header.workers;
  slot.congested |= header.congested;
  slot.saturated |= header.saturated;
  slot.next_exponent = std::max(slot.next_exponent, header.next_exponent);
  if (slot.members != all) return action;
  action.cause = Cause::kCompleted;
  action.emit = Emit::kSumToWorkers;
  make_result(slot, header, all);
  return action;
}

void SwitchmlTable::make_result(const Slot& slot, wire::AtpHeader& header,
                                std::uint32_t receivers) {
  header.kind = wire::AtpKind::kResult;
  header.workers = receivers;
  header.next_exponent = slot.next_exponent;
  header.congested = slot.congested;
  header.saturated = slot.saturated;
  header.resend = false;
  header.collision = false;
}

void SwitchmlTable::restart() { std::ranges::fill(slots_, Slot()); }

void SwitchmlTable::encode_state(std::string& out) const {
  out += 'm';
  for (const Slot& slot : slots_) out += fmt::format("{},{};", slot.sequence, slot.members);
}

}  // namespace thalweg::sim
