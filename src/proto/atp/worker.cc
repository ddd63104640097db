#include "proto/atp/worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace thalweg {
namespace {

// Doublings of a timeout; what is beyond is `most` anyway.
constexpr std::uint8_t kMostTries = 20;

}  // namespace

AtpWorker::AtpWorker(const AtpWorkerOptions& options)
    : options_(options),
      congestion_(options),
      flights_(options.window),
      looked_at_(options.servers) {
  CHECK(options.validate().ok(), "{}", options.validate().error().message());
}

std::string AtpWorker::name() const {
  return fmt::format("job {}: worker {} of group {}", options_.job, options_.index, options_.group);
}

Result<AtpTensorHandle> AtpWorker::start(const AtpTensorSpec& spec, Time now) {
  if (!failed_.empty()) return Error(failed_);
  THALWEG_TRY_STATUS(check_tensor(spec, tensors_.count(), options_.most_tensors));
  const AtpTensorHandle handle = tensors_.start(spec, options_.elements, now);
  wake_at(now + spec.deadline);
  return handle;
}

AtpPlacement AtpWorker::on_parameter(const AtpHeader& header, Time now) {
  AtpPlacement placement;
  if (!failed_.empty()) {
    placement.verdict = AtpPlacement::Verdict::kFailed;
    return placement;
  }
  if (header.kind != AtpKind::kParameter || header.job != options_.job) {
    ++counters_.mismatch;
    return placement;
  }
  if (header.sequence < oldest_ || header.sequence >= next_) {
    ++counters_.out_of_window;
    placement.verdict = AtpPlacement::Verdict::kOutOfWindow;
    return placement;
  }
  Flight& flight = this->flight(header.sequence);
  if (flight.placed) {
    ++counters_.duplicate;
    placement.verdict = AtpPlacement::Verdict::kDuplicate;
    return placement;
  }
  placement.block = tensors_.block(header.sequence);
  if (placement.block.elements != header.elements) {
    ++counters_.mismatch;
    return placement;
  }
  placement.verdict = AtpPlacement::Verdict::kPlace;
  ++counters_.placed;
  counters_.marks += header.congested ? 1 : 0;
  if (flight.tries == 0 && !starting_) measure(now - flight.sent);
  if (starting_) wake_at(now);
  starting_ = false;
  if (flight.lost) {
    --lost_;
    if (flight.late) --late_;
  } else {
    take_off(flight);
  }
  if (flight.tries > 0) late_credit_ += 2;
  if (lost_ == 0) late_credit_ = 1;
  flight.placed = true;
  flight.lost = false;
  congestion_.on_parameter(header.sequence, header.congested, next_);
  tensors_.done(header.sequence, header.saturated, now);
  note_order(header.sequence);
  return placement;
}

// Moves UNA, and looks at what came out of sequence.
void AtpWorker::note_order(std::uint64_t sequence) {
  const AtpRecoveryOptions& recovery = options_.recovery;
  const bool first = sequence == oldest_;
  while (oldest_ < next_ && flight(oldest_).placed) ++oldest_;
  if (recovery.out_of_sequence == 0) return;
  if (recovery.all_holes) {
    find_holes(sequence);
    if (again_ > 0 && sequence >= next_look_) find_lost_again(sequence);
    return;
  }
  later_ = first ? 0 : later_ + 1;
  if (later_ < patience()) return;
  later_ = 0;
  if (flight(oldest_).tries > 0 || flight(oldest_).lost) return;  // from here on by timeout
  mark_lost(oldest_, counters_.out_of_sequence);
}

// Sums of several servers overtake each other.
std::uint64_t AtpWorker::patience() const {
  return std::uint64_t{options_.recovery.out_of_sequence} * options_.servers;
}

// The first of this server's sequences that is not below UNA.
std::uint64_t AtpWorker::oldest_of(std::uint64_t server) const {
  const std::uint64_t servers = options_.servers;
  return oldest_ + (server + servers - oldest_ % servers) % servers;
}

// A parameter of this sequence came: what its server should have answered before is lost, since one
// server's sums come in order.
void AtpWorker::find_holes(std::uint64_t sequence) {
  const std::uint64_t servers = options_.servers;
  std::uint64_t& looked_at = looked_at_[sequence % servers];
  looked_at = std::max(looked_at, oldest_of(sequence % servers));
  const bool tail = options_.recovery.tail_holes && next_ == tensors_.end();
  const std::uint64_t reach = tail && sequence + servers >= next_ ? servers : patience();
  for (; looked_at + reach <= sequence; looked_at += servers) {
    const Flight& each = flight(looked_at);
    if (each.placed || each.lost || each.tries > 0) continue;
    mark_lost(looked_at, counters_.out_of_sequence);
  }
}

void AtpWorker::find_lost_again(std::uint64_t sequence) {
  next_look_ = std::numeric_limits<std::uint64_t>::max();
  std::uint32_t left = again_;
  for (std::uint64_t each = oldest_; left > 0; ++each) {
    const Flight& flight = this->flight(each);
    if (flight.placed || flight.lost || flight.tries == 0) continue;
    --left;
    const bool same_server = each % options_.servers == sequence % options_.servers;
    if (same_server && flight.overtaken_by <= sequence) {
      mark_lost(each, counters_.out_of_sequence);
    } else {
      next_look_ = std::min(next_look_, flight.overtaken_by);
    }
  }
}

// It is placed or lost.
void AtpWorker::take_off(const Flight& flight) {
  --in_flight_;
  if (flight.tries > 0) --again_;
}

void AtpWorker::mark_lost(std::uint64_t sequence, std::uint64_t& counter) {
  take_off(flight(sequence));
  flight(sequence).lost = true;
  first_lost_ = lost_++ == 0 ? sequence : std::min(first_lost_, sequence);
  ++counter;
  congestion_.on_loss(sequence, next_);
}

// A low quantile: falls fast and rises slowly. The mean would not do: a sequence that waits for
// another worker's retransmission takes as long as that worker's timeout, so with enough loss each
// would lengthen the other's timeout to the limit.
void AtpWorker::measure(Duration sample) {
  constexpr std::int64_t kRise = 64;
  constexpr std::int64_t kFall = 4;
  if (!typical_) typical_ = sample;
  const Duration error = sample - *typical_;
  *typical_ += error / (error > Duration() ? kRise : kFall);
  congestion_.on_delay(sample, *typical_);
}

Duration AtpWorker::timeout(const Flight& flight) const {
  const AtpRecoveryOptions& recovery = options_.recovery;
  Duration base = typical_ ? *typical_ * recovery.factor : recovery.initial;
  if (starting_) base = std::max(base, recovery.initial);
  base = std::clamp(base, recovery.least, recovery.most);
  for (std::uint8_t i = 0; i < flight.tries && base < recovery.most; ++i) base = base * 2;
  return std::min(base, recovery.most);
}

void AtpWorker::on_abort(const AtpHeader& header, Time now) {
  if (header.kind != AtpKind::kAbort || header.job != options_.job) {
    ++counters_.mismatch;
    return;
  }
  if (!failed_.empty() || header.sequence != oldest_ || oldest_ == next_) {
    ++counters_.out_of_window;
    return;
  }
  fail(fmt::format("the server waits in vain at sequence {} for workers: {}", header.sequence,
                   missing_workers(header)),
       now);
}

void AtpWorker::fail(const std::string& cause, Time now) {
  if (!failed_.empty()) return;
  failed_ = fmt::format("{}: {}", name(), cause);
  tensors_.fail_all(failed_, now);
  lost_ = 0;
  late_ = 0;
  in_flight_ = 0;
  again_ = 0;
  starting_ = false;
  oldest_ = next_;
  wake_.reset();
}

void AtpWorker::on_timeout(Time now) {
  if (!failed_.empty() || !wake_ || now < *wake_) return;
  wake_.reset();
  if (const auto deadline = tensors_.next_deadline()) {
    if (now >= *deadline) {
      const std::uint64_t sequence = oldest_;
      return fail(fmt::format("deadline: no sum of sequence {} from server {}", sequence,
                              sequence % options_.servers),
                  now);
    }
    wake_at(*deadline);
  }
  bool in_vain = false;
  for (std::uint64_t sequence = oldest_; sequence < next_; ++sequence) {
    const Flight& each = flight(sequence);
    if (each.placed || each.lost) continue;
    const Time due = each.sent + timeout(each);
    if (now >= due) {
      in_vain |= each.tries > 0;
      mark_lost(sequence, counters_.timeouts);
      flight(sequence).late = true;
      ++late_;
      late_credit_ = std::max(late_credit_, 1U);
    } else {
      wake_at(due);
    }
  }
  if (in_vain) congestion_.on_retransmission_lost(next_);
}

void AtpWorker::wake_at(Time time) { wake_ = wake_ ? std::min(*wake_, time) : time; }

std::optional<Time> AtpWorker::next_timeout() const { return wake_; }

bool AtpWorker::may_send_new() const {
  return next_ < tensors_.end() && next_ - oldest_ < options_.window &&
         in_flight_ < congestion_.packets();
}

// Only within the window: workers that all lost much send it again at the same time, and would lose
// it again.
std::optional<std::uint64_t> AtpWorker::lost_to_send() const {
  const std::uint32_t held_back = late_credit_ > 0 ? 0 : late_;
  if (lost_ == held_back || in_flight_ >= congestion_.packets()) return std::nullopt;
  std::uint64_t sequence = std::max(oldest_, first_lost_);
  while (!flight(sequence).lost || (held_back > 0 && flight(sequence).late)) ++sequence;
  return sequence;
}

bool AtpWorker::ready() const { return failed_.empty() && (lost_to_send() || may_send_new()); }

bool AtpWorker::poll_transmit(Time now, AtpTransmit& out) {
  if (!failed_.empty()) return false;
  const std::optional<std::uint64_t> again = lost_to_send();
  if (!again && !may_send_new()) return false;
  const std::uint64_t sequence = again ? *again : next_;
  if (again) {
    if (late_credit_ > 0) first_lost_ = sequence + 1;  // nothing was held back
    --lost_;
    ++counters_.retransmitted;
    tensors_.retransmitted(sequence);
    Flight& each = flight(sequence);
    each.lost = false;
    if (each.late) {
      --late_credit_;
      --late_;
    }
    each.late = false;
    each.tries = std::min<std::uint8_t>(each.tries + 1, kMostTries);
    each.overtaken_by = next_ + in_flight_;
    next_look_ = again_++ == 0 ? each.overtaken_by : std::min(next_look_, each.overtaken_by);
  } else {
    starting_ |= oldest_ == next_;
    ++next_;
    flight(sequence) = Flight();
  }
  ++counters_.sent;
  ++in_flight_;
  flight(sequence).sent = now;
  wake_at(now + timeout(flight(sequence)));
  out.server = static_cast<std::uint32_t>(sequence % options_.servers);
  out.block = tensors_.block(sequence);
  out.header = AtpHeader();
  out.header.level = options_.level;
  out.header.job = options_.job;
  out.header.sequence = sequence;
  // Alone in its group a worker is all of it.
  const bool alone = options_.level != kAtpFirstLevel && options_.fan_in == 1;
  out.header.groups = alone ? atp_bit(options_.group) : 0;
  out.header.workers = alone ? 0 : atp_bit(options_.index);
  out.header.group = options_.group;
  out.header.fan_in = options_.fan_in;
  out.header.group_count = options_.group_count;
  out.header.elements = out.block.elements;
  out.header.resend = again.has_value();
  out.header.collision = options_.level == kAtpServerLevel;
  out.header.keyed = options_.keyed;
  return true;
}

void AtpWorker::encode_state(std::string& out) const {
  out += fmt::format("w{},{},{},{}{}", oldest_, next_, later_, late_credit_, starting_ ? '>' : ':');
  for (std::size_t server = 0; server < looked_at_.size(); ++server) {
    const std::uint64_t looked_at = looked_at_[server];
    out += fmt::format("{},", looked_at - std::min(looked_at, oldest_of(server)));
  }
  for (std::uint64_t sequence = oldest_; sequence < next_; ++sequence) {
    const Flight& each = flight(sequence);
    out += static_cast<char>('0' + (each.placed ? 1 : 0) + (each.lost ? 2 : 0) +
                             (each.late ? 4 : 0) + (each.tries > 0 ? 8 : 0));
    if (each.tries > 0 && !each.placed && !each.lost) {
      out += fmt::format("{}.", std::min(each.overtaken_by, tensors_.end()));
    }
  }
}

}  // namespace thalweg
