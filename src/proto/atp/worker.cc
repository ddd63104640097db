#include "proto/atp/worker.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"

namespace thalweg::proto {
namespace {

// The most doublings of a timeout; a timeout that doubled more often is at its limit anyway.
constexpr std::uint8_t kMostTries = 20;

}  // namespace

AtpWorker::AtpWorker(const AtpWorkerOptions& options)
    : options_(options),
      congestion_(options),
      exponents_(options.prediction),
      flights_(options.window),
      looked_at_(options.servers),
      typical_(options.paths) {
  CHECK(options.validate().ok(), "{}", options.validate().error().message());
}

std::string AtpWorker::name() const {
  return fmt::format("job {}: worker {} of group {}", options_.job, options_.index, options_.group);
}

Result<AtpTensorHandle> AtpWorker::start(const AtpTensorSpec& spec, Time now) {
  if (failed_) return *failed_;
  THALWEG_TRY_STATUS(check_tensor(spec, tensors_.count(), options_.most_tensors));
  paused_ |= next_ == tensors_.end();
  AtpExponents::Call call;
  if (spec.scaling.kind != 0) {
    const auto blocks = static_cast<std::uint64_t>((spec.elements - 1) / options_.elements + 1);
    call = exponents_.start(spec.scaling, tensors_.end(),
                            std::min<std::uint64_t>(blocks, options_.window));
  }
  const AtpTensorHandle handle = tensors_.start(spec, options_.elements, now, call);
  wake_at(now + spec.deadline);
  return handle;
}

AtpPlacement AtpWorker::on_parameter(const wire::AtpHeader& header, Time now) {
  AtpPlacement placement;
  if (failed_) {
    placement.verdict = AtpPlacement::Verdict::kFailed;
    return placement;
  }
  if (header.kind != wire::AtpKind::kParameter || header.job != options_.job) {
    ++counters_.mismatch;
    return placement;
  }
  const std::uint64_t sequence = wire::atp_first_time(header.sequence);
  if (sequence < oldest_ || sequence >= next_) {
    ++counters_.out_of_window;
    placement.verdict = AtpPlacement::Verdict::kOutOfWindow;
    return placement;
  }
  Flight& flight = this->flight(sequence);
  const bool first_time = !wire::atp_is_repetition(header.sequence);
  if (flight.placed || (flight.repeated && first_time)) {
    ++counters_.duplicate;
    placement.verdict = AtpPlacement::Verdict::kDuplicate;
    return placement;
  }
  placement.block = tensors_.block(sequence);
  AtpFit fit = AtpFit::kFits;
  if (placement.block.scaled()) {
    fit = fit_of(flight.exponent, header.needed_exponent, placement.block.scaling.slack);
    placement.exponent = fit == AtpFit::kNotFinite ? tensor::kNotFinite : flight.exponent;
  }
  // A repetition has the exponent that was needed, so it fits.
  if (flight.repeated == first_time || !matches(header, placement.block, flight) ||
      (flight.repeated && fit == AtpFit::kRepeat)) {
    ++counters_.mismatch;
    return placement;
  }
  acknowledge(sequence, header.congested, now);
  if (fit == AtpFit::kRepeat) {
    placement.verdict = AtpPlacement::Verdict::kRepeat;
    repeat(sequence, header.needed_exponent);
  } else {
    placement.verdict = AtpPlacement::Verdict::kPlace;
    ++counters_.placed;
    flight.placed = true;
    flight.ahead = header.next_exponent;
    if (placement.block.scaled() && placement.block.index < options_.window) {
      exponents_.learn(placement.block.call, placement.block.index, header.needed_exponent);
    }
    tensors_.done(sequence, header.saturated, now);
  }
  note_order(sequence, now);
  return placement;
}

bool AtpWorker::matches(const wire::AtpHeader& header, const AtpBlock& block,
                        const Flight& flight) {
  if (block.elements != header.elements) return false;
  if (!block.scaled()) return true;
  return header.exponent == flight.exponent && tensor::is_needed_exponent(header.needed_exponent) &&
         tensor::is_needed_exponent(header.next_exponent);
}

void AtpWorker::acknowledge(std::uint64_t sequence, bool congested, Time now) {
  Flight& flight = this->flight(sequence);
  last_placed_ = now;
  counters_.marks += congested ? 1 : 0;
  if (starting_) {
    wake_at(now);
    starting_ = false;
    measure_from_ = next_;
  }
  const auto taken = options_.own(sequence) ? std::nullopt : time_taken(flight, now);
  if (taken && sequence < measure_from_) congestion_.on_first(*taken);
  if (taken && sequence >= measure_from_) measure(flight.path, *taken);
  const bool full = in_flight_ >= congestion_.packets();
  if (flight.lost) {
    --lost_;
    if (flight.late) --late_;
  } else {
    take_off(flight);
  }
  if (flight.tries > 0) late_credit_ += 2;
  if (lost_ == 0) late_credit_ = 1;
  flight.lost = false;
  congestion_.on_parameter(sequence, congested, full, next_);
}

void AtpWorker::repeat(std::uint64_t sequence, std::int8_t exponent) {
  Flight& flight = this->flight(sequence);
  const std::uint8_t path = flight.path;
  flight = Flight();
  flight.path = path;
  flight.repeated = true;
  flight.fresh = true;
  flight.exponent = exponent;
  flight.lost = true;
  flight.gentle = true;
  first_lost_ = lost_++ == 0 ? sequence : std::min(first_lost_, sequence);
}

void AtpWorker::on_abort(const wire::AtpHeader& header, Time now, std::optional<int> rank) {
  if (header.kind != wire::AtpKind::kAbort || header.job != options_.job) {
    ++counters_.mismatch;
    return;
  }
  if (failed_ || wire::atp_first_time(header.sequence) != oldest_ || oldest_ == next_) {
    ++counters_.out_of_window;
    return;
  }
  fail({ErrorCode::kTimeout,
        fmt::format("the server waits in vain at sequence {} for workers: {}", header.sequence,
                    missing_workers(header)),
        rank},
       now);
}

void AtpWorker::fail(const Error& cause, Time now) {
  if (failed_) return;
  failed_ = cause.within(name());
  tensors_.fail_all(*failed_, now);
  lost_ = 0;
  late_ = 0;
  in_flight_ = 0;
  again_ = 0;
  starting_ = false;
  oldest_ = next_;
  wake_.reset();
}

void AtpWorker::wake_at(Time time) { wake_ = wake_ ? std::min(*wake_, time) : time; }

std::optional<Time> AtpWorker::next_timeout() const { return wake_; }

bool AtpWorker::may_send_new() const {
  return next_ < tensors_.end() && next_ - oldest_ < options_.window &&
         in_flight_ + late_ < congestion_.packets() && next_exponent().has_value();
}

// A place of flights_ still holds the flight that was there one window before.
std::optional<std::int8_t> AtpWorker::next_exponent() const {
  const AtpBlock block = tensors_.block(next_);
  if (!block.scaled()) return std::int8_t{0};
  if (block.index < options_.window) return exponents_.predict(block.call, block.index);
  return std::max(flight(next_).ahead, tensor::kLeastExponent);
}

// Retransmissions stay within the congestion window: workers that all lost much retransmit at the
// same time, and would lose it all again.
std::optional<std::uint64_t> AtpWorker::lost_to_send() const {
  const std::uint32_t held_back = late_credit_ > 0 ? 0 : late_;
  if (lost_ == held_back || in_flight_ >= congestion_.packets()) return std::nullopt;
  std::uint64_t sequence = std::max(oldest_, first_lost_);
  while (!flight(sequence).lost || (held_back > 0 && flight(sequence).late)) ++sequence;
  return sequence;
}

bool AtpWorker::ready() const { return !failed_ && (lost_to_send() || may_send_new()); }

bool AtpWorker::poll_transmit(Time now, AtpTransmit& out) {
  if (failed_) return false;
  const std::optional<std::uint64_t> again = lost_to_send();
  if (!again && !may_send_new()) return false;
  const std::uint64_t sequence = again ? *again : next_;
  bool resend = false;
  out.again = again && !flight(sequence).fresh;
  if (again) {
    resend = take_again(sequence);
  } else {
    const std::int8_t exponent = *next_exponent();
    starting_ |= paused_ && oldest_ == next_;
    paused_ = false;
    ++next_;
    flight(sequence) = Flight();
    flight(sequence).exponent = exponent;
    flight(sequence).path = static_cast<std::uint8_t>(wire::atp_path_of(sequence, options_.paths));
    if (at_end()) wake_at(now);  // from now on timeouts are shorter
  }
  ++counters_.sent;
  ++in_flight_;
  flight(sequence).sent = now;
  if (flight(sequence).tries == 0) flight(sequence).first_sent = now;
  wake_at(now + timeout(flight(sequence)));
  fill(sequence, resend, out);
  return true;
}

bool AtpWorker::take_again(std::uint64_t sequence) {
  if (late_credit_ > 0) first_lost_ = sequence + 1;  // nothing was held back
  --lost_;
  Flight& each = flight(sequence);
  each.lost = false;
  if (each.late) {
    --late_credit_;
    --late_;
  }
  each.late = false;
  each.overtaken = false;
  const bool resend = !each.gentle;
  each.gentle = false;
  if (each.fresh) {
    each.fresh = false;
    ++counters_.repeated;
    return resend;
  }
  ++counters_.retransmitted;
  tensors_.retransmitted(sequence);
  each.tries = std::min<std::uint8_t>(each.tries + 1, kMostTries);
  each.overtaken_by = next_ + in_flight_;
  next_look_ = again_++ == 0 ? each.overtaken_by : std::min(next_look_, each.overtaken_by);
  return resend;
}

void AtpWorker::fill(std::uint64_t sequence, bool resend, AtpTransmit& out) const {
  const Flight& flight = this->flight(sequence);
  out.server = static_cast<std::uint32_t>(sequence % options_.servers);
  out.block = tensors_.block(sequence);
  out.ahead = out.block.scaled() ? tensors_.ahead(sequence, options_.window) : AtpBlock();
  out.own = options_.own(sequence);
  out.header = wire::AtpHeader();
  out.header.level = out.own ? wire::kAtpServerLevel : options_.level;
  out.header.job = options_.job;
  out.header.sequence = flight.repeated ? wire::kAtpRepetition + sequence : sequence;
  out.header.exponent = flight.exponent;
  // A worker that is alone in its group contributes for the whole group.
  const bool alone = options_.level != wire::kAtpFirstLevel && options_.fan_in == 1;
  out.header.groups = alone ? wire::atp_bit(options_.group) : 0;
  out.header.workers = alone ? 0 : wire::atp_bit(options_.index);
  out.header.group = options_.group;
  out.header.fan_in = options_.fan_in_of(sequence);
  out.header.group_count = options_.group_count;
  out.header.elements = out.block.elements;
  out.header.resend = resend;
  out.header.collision = out.header.level == wire::kAtpServerLevel;
  out.header.keyed = options_.keyed;
  out.past_switches = flight.bad_sums > 0;
}

void AtpWorker::encode_state(std::string& out) const {
  out += fmt::format("w{},{},{},{}{}{}", oldest_, next_, later_, late_credit_,
                     starting_ ? '>' : ':', paused_ ? '|' : ':');
  for (std::size_t server = 0; server < looked_at_.size(); ++server) {
    const std::uint64_t looked_at = looked_at_[server];
    out += fmt::format("{},", looked_at - std::min(looked_at, oldest_of(server)));
  }
  exponents_.encode_state(out);
  for (std::uint64_t sequence = oldest_; sequence < next_; ++sequence) {
    const Flight& each = flight(sequence);
    out += static_cast<char>('0' + (each.placed ? 1 : 0) + (each.lost ? 2 : 0) +
                             (each.late ? 4 : 0) + (each.tries > 0 ? 8 : 0) +
                             (each.overtaken ? 16 : 0) + (each.gentle ? 32 : 0));
    if (each.repeated) out += each.fresh ? "rf" : "r";
    if (each.bad_sums > 0) out += fmt::format("b{}.", each.bad_sums);
    if (each.tries > 0 && !each.placed && !each.lost) {
      out += fmt::format("{}.", std::min(each.overtaken_by, tensors_.end()));
    }
  }
}

}  // namespace thalweg::proto
