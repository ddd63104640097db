#include "sim/baselines/switchml_worker.h"

#include <fmt/core.h>

#include "base/check.h"
#include "proto/require.h"

namespace thalweg::sim {

Status SwitchmlWorkerOptions::validate() const {
  constexpr std::uint32_t kMostPool = 1U << 20;
  THALWEG_TRY_STATUS(proto::require(workers >= 1 && workers <= wire::kAtpMostWorkersPerGroup,
                                    "workers", std::to_string(workers), "from 1 to 32"));
  THALWEG_TRY_STATUS(
      proto::require(index < workers, "index", std::to_string(index), "below workers"));
  THALWEG_TRY_STATUS(proto::require(pool >= 1 && pool <= kMostPool, "pool", std::to_string(pool),
                                    "from 1 to 1048576"));
  THALWEG_TRY_STATUS(proto::require(elements >= 1 && elements <= wire::kAtpMostElements, "elements",
                                    std::to_string(elements), "from 1 to 2048"));
  THALWEG_TRY_STATUS(
      proto::require_number(most_tensors >= 1, "most_tensors", most_tensors, "at least 1"));
  return proto::require_positive(timeout, "timeout");
}

SwitchmlWorker::SwitchmlWorker(const SwitchmlWorkerOptions& options)
    : options_(options), places_(options.pool) {
  CHECK(options.validate().ok(), "{}", options.validate().error().message());
  for (std::uint32_t i = 0; i < options.pool; ++i) places_[i].sequence = i;
}

std::string SwitchmlWorker::name() const {
  return fmt::format("job {}: worker {}", options_.job, options_.index);
}

Result<proto::AtpTensorHandle> SwitchmlWorker::start(const proto::AtpTensorSpec& spec, Time now) {
  if (!failed_.empty()) return Error(ErrorCode::kTimeout, failed_);
  THALWEG_TRY_STATUS(proto::check_tensor(spec, tensors_.count(), options_.most_tensors));
  const proto::AtpTensorHandle handle = tensors_.start(spec, options_.elements, now, {});
  wake_at(now + spec.deadline);
  idle_places_ = 0;
  return handle;
}

proto::AtpPlacement SwitchmlWorker::on_result(const wire::AtpHeader& header, Time now) {
  proto::AtpPlacement placement;
  if (!failed_.empty()) {
    placement.verdict = proto::AtpPlacement::Verdict::kFailed;
    return placement;
  }
  Place& place = places_[header.sequence % options_.pool];
  if (header.kind != wire::AtpKind::kResult || header.job != options_.job) {
    ++dropped_;
    return placement;
  }
  if (header.sequence != place.sequence || !place.in_flight) {
    ++dropped_;
    placement.verdict = header.sequence < place.sequence
                            ? proto::AtpPlacement::Verdict::kDuplicate
                            : proto::AtpPlacement::Verdict::kOutOfWindow;
    return placement;
  }
  placement.block = tensors_.block(header.sequence);
  if (placement.block.elements != header.elements) {
    ++dropped_;
    return placement;
  }
  placement.verdict = proto::AtpPlacement::Verdict::kPlace;
  place.in_flight = false;
  place.lost = false;
  place.sequence += options_.pool;
  idle_places_ = 0;
  tensors_.done(header.sequence, header.saturated, now);
  return placement;
}

void SwitchmlWorker::fail(const std::string& cause, Time now) {
  if (!failed_.empty()) return;
  failed_ = fmt::format("{}: {}", name(), cause);
  tensors_.fail_all({ErrorCode::kTimeout, failed_}, now);
  wake_.reset();
}

void SwitchmlWorker::on_timeout(Time now) {
  if (!failed_.empty() || !wake_ || now < *wake_) return;
  wake_.reset();
  if (const auto deadline = tensors_.next_deadline()) {
    if (now >= *deadline) return fail("deadline: no result from the switch", now);
    wake_at(*deadline);
  }
  for (Place& place : places_) {
    if (!place.in_flight || place.lost) continue;
    const Time due = place.sent + options_.timeout;
    if (now >= due) {
      place.lost = true;
      idle_places_ = 0;
    } else {
      wake_at(due);
    }
  }
}

bool SwitchmlWorker::poll_transmit(Time now, proto::AtpTransmit& out) {
  if (!failed_.empty()) return false;
  for (; idle_places_ < options_.pool; ++idle_places_) {
    Place& place = places_[cursor_];
    cursor_ = cursor_ + 1 == options_.pool ? 0 : cursor_ + 1;
    const bool fresh = !place.in_flight && place.sequence < tensors_.end();
    if (!fresh && !place.lost) continue;
    if (place.lost) {
      ++retransmitted_;
      tensors_.retransmitted(place.sequence);
    }
    out.header = wire::AtpHeader();
    out.header.kind = wire::AtpKind::kUpdate;
    out.header.job = options_.job;
    out.header.sequence = place.sequence;
    out.header.workers = wire::atp_bit(options_.index);
    out.header.fan_in = options_.workers;
    out.header.resend = place.lost;
    out.header.keyed = options_.keyed;
    out.server = 0;
    out.block = tensors_.block(place.sequence);
    out.header.elements = out.block.elements;
    place.in_flight = true;
    place.lost = false;
    place.sent = now;
    wake_at(now + options_.timeout);
    return true;
  }
  return false;
}

}  // namespace thalweg::sim
