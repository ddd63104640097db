// How an AtpWorker finds that packets were lost.
#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "proto/atp/worker.h"

namespace thalweg::proto {

// Moves UNA, and marks the losses that a parameter out of sequence shows.
void AtpWorker::note_order(std::uint64_t sequence, Time now) {
  const AtpRecoveryOptions& recovery = options_.recovery;
  const bool first = sequence == oldest_;
  while (oldest_ < next_ && flight(oldest_).placed) ++oldest_;
  if (recovery.out_of_sequence == 0) return;
  if (recovery.all_holes) {
    find_holes(sequence, now);
    if (again_ > 0 && sequence >= next_look_) find_lost_again(sequence, now);
    return;
  }
  later_ = first ? 0 : later_ + 1;
  if (later_ < patience()) return;
  later_ = 0;
  // Once UNA was sent again, only its timeout shows a further loss.
  if (flight(oldest_).tries > 0 || flight(oldest_).lost) return;
  mark_lost(oldest_, counters_.out_of_sequence);
}

// The sums of different servers overtake each other, so the option counts for each server.
std::uint64_t AtpWorker::patience() const {
  return std::uint64_t{options_.recovery.out_of_sequence} * options_.servers;
}

std::uint64_t AtpWorker::oldest_of(std::uint64_t server) const {
  const std::uint64_t servers = options_.servers;
  return oldest_ + (server + servers - oldest_ % servers) % servers;
}

// One server's sums arrive in order: whatever the server should have answered before `sequence`
// is lost, unless a switch has asked the worker whose packet it missed. So these sequences get
// some time, counted from when they were sent.
void AtpWorker::find_holes(std::uint64_t sequence, Time now) {
  const std::uint64_t servers = options_.servers;
  std::uint64_t& looked_at = looked_at_[sequence % servers];
  looked_at = std::max(looked_at, oldest_of(sequence % servers));
  const std::uint64_t reach = at_end() && sequence + servers >= next_ ? servers : patience();
  for (; looked_at + reach <= sequence; looked_at += servers) {
    Flight& each = flight(looked_at);
    if (each.placed || each.lost || each.repeated || each.tries > 0) continue;
    doubt(looked_at, now);
  }
  // At the end there are no later sums of some servers, but of others.
  if (!at_end() || sequence + options_.window / 2 < next_) return;
  for (std::uint64_t each = oldest_; each + options_.recovery.out_of_sequence <= sequence; ++each) {
    const Flight& hole = flight(each);
    if (hole.placed || hole.lost || hole.repeated || hole.tries > 0 || hole.overtaken) continue;
    doubt(each, now);
  }
}

void AtpWorker::doubt(std::uint64_t sequence, Time now) {
  Flight& hole = flight(sequence);
  hole.overtaken = true;
  const Time due = hole.sent + timeout(hole);
  if (now < due) {
    wake_at(due);
  } else {
    mark_lost(sequence, counters_.out_of_sequence);
  }
}

bool AtpWorker::at_end() const { return options_.recovery.tail_holes && next_ == tensors_.end(); }

// A retransmission on a slow path may arrive behind a later packet on a fast one, so where there
// are several paths it also gets the time that its path takes.
void AtpWorker::find_lost_again(std::uint64_t sequence, Time now) {
  next_look_ = std::numeric_limits<std::uint64_t>::max();
  std::uint32_t left = again_;
  for (std::uint64_t each = oldest_; left > 0; ++each) {
    const Flight& flight = this->flight(each);
    if (flight.placed || flight.lost || flight.tries == 0) continue;
    --left;
    const bool same_server = each % options_.servers == sequence % options_.servers;
    const bool in_time =
        options_.paths > 1 && now - flight.sent < typical(flight).value_or(options_.recovery.least);
    if (same_server && flight.overtaken_by <= sequence && !in_time) {
      mark_lost(each, counters_.out_of_sequence);
    } else {
      next_look_ = std::min(next_look_, flight.overtaken_by);
    }
  }
}

void AtpWorker::take_off(const Flight& flight) {
  --in_flight_;
  if (flight.tries > 0) --again_;
}

void AtpWorker::mark_lost(std::uint64_t sequence, std::uint64_t& counter) {
  take_off(flight(sequence));
  flight(sequence).lost = true;
  first_lost_ = lost_++ == 0 ? sequence : std::min(first_lost_, sequence);
  ++counter;
  if (!waits_for_start()) congestion_.on_loss(sequence, next_);
}

// The typical time is a low quantile, which falls fast and rises slowly. A mean would not do: a
// sequence that waits for another worker's retransmission takes as long as that worker's timeout,
// so with enough loss the workers would lengthen each other's timeouts to the limit.
//
// Paths differ in how long they take, and each sees a part of the sums only, so it rises faster.
void AtpWorker::measure(std::uint8_t path, Duration sample) {
  constexpr std::int64_t kRise = 64;
  constexpr std::int64_t kFall = 4;
  constexpr std::int64_t kMostFaster = 4;
  const std::int64_t rise = kRise / std::min<std::int64_t>(options_.paths, kMostFaster);
  std::optional<Duration>& typical = typical_[path];
  if (!typical) typical = sample;
  const Duration error = sample - *typical;
  *typical += error / (error > Duration() ? rise : kFall);
  Duration slowest = *typical;
  for (const std::optional<Duration>& each : typical_)
    slowest = std::max(slowest, each.value_or(slowest));
  congestion_.on_delay(sample, slowest);
}

// A sum that comes much sooner after the last sending than its path takes belongs to the first. So
// a path that has become slower is noticed, though what it brings is sent again before.
std::optional<Duration> AtpWorker::time_taken(const Flight& flight, Time now) const {
  if (flight.tries == 0) return now - flight.sent;
  const std::optional<Duration> typical = this->typical(flight);
  const bool of_first =
      options_.paths > 1 && flight.tries == 1 && typical && (now - flight.sent) * 2 < *typical;
  return of_first ? std::optional(now - flight.first_sent) : std::nullopt;
}

Duration AtpWorker::timeout(const Flight& flight) const {
  const AtpRecoveryOptions& recovery = options_.recovery;
  const std::optional<Duration> typical = this->typical(flight);
  if (flight.overtaken) {
    // Other paths prove nothing while the time of this one is not known.
    const Duration unknown = options_.paths > 1 ? recovery.initial : Duration();
    return typical ? *typical * recovery.patience : unknown;
  }
  Duration base = typical ? *typical * recovery.factor : recovery.initial;
  if (starting_) base = std::max(base, recovery.initial);
  base = std::clamp(base, recovery.least, recovery.most);
  if (typical && !starting_ && at_end()) {
    // Above zero, so that doubling it leads somewhere.
    const Duration soon = std::max(*typical * std::max<std::int64_t>(recovery.patience, 1),
                                   Duration::microseconds(1));
    base = flight.tries > 0 ? soon : std::max(soon, recovery.least);
  }
  for (std::uint8_t i = 1; i < flight.tries && base < recovery.most; ++i) base = base * 2;
  return std::min(base, recovery.most);
}

void AtpWorker::on_missing(const wire::AtpHeader& header) {
  if (header.kind != wire::AtpKind::kMissing || header.job != options_.job) {
    ++counters_.mismatch;
    return;
  }
  const std::uint64_t sequence = wire::atp_first_time(header.sequence);
  if (failed_ || sequence < oldest_ || sequence >= next_) {
    ++counters_.out_of_window;
    return;
  }
  Flight& flight = this->flight(sequence);
  // A switch misses what goes to the worker's own server if it does not know of that.
  if (flight.placed || flight.lost || flight.tries > 0 || options_.own(sequence) ||
      flight.repeated != wire::atp_is_repetition(header.sequence)) {
    ++counters_.duplicate;
    return;
  }
  mark_lost(sequence, counters_.missing);
  flight.gentle = true;
}

// One that is to be sent again already has been counted before: copies of one bad sum are no proof
// that the next would be bad.
void AtpWorker::on_corrupt(const wire::AtpHeader& header, const std::string& way, Time now) {
  if (failed_) return;
  const std::uint64_t sequence = wire::atp_first_time(header.sequence);
  if (header.kind != wire::AtpKind::kParameter || header.job != options_.job) {
    ++counters_.mismatch;
    return;
  }
  if (sequence < oldest_ || sequence >= next_) {
    ++counters_.out_of_window;
    return;
  }
  Flight& flight = this->flight(sequence);
  if (flight.placed || flight.lost || flight.repeated != wire::atp_is_repetition(header.sequence)) {
    ++counters_.duplicate;
    return;
  }
  mark_lost(sequence, counters_.corrupt);
  if (++flight.bad_sums < options_.recovery.most_bad_sums) return;
  fail({ErrorCode::kInternal,
        fmt::format("the sum of sequence {} from server {} was changed on its way {} times, at "
                    "last by way of {}: look for a faulty card, switch or memory there",
                    sequence, sequence % options_.servers, flight.bad_sums, way)},
       now);
}

void AtpWorker::on_timeout(Time now) {
  if (failed_ || !wake_ || now < *wake_) return;
  wake_.reset();
  if (const auto deadline = tensors_.next_deadline()) {
    if (now >= *deadline) {
      const std::uint64_t sequence = oldest_;
      return fail(
          {ErrorCode::kTimeout, fmt::format("deadline: no sum of sequence {} from server {}",
                                            sequence, sequence % options_.servers)},
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
      if (each.overtaken) {
        mark_lost(sequence, counters_.out_of_sequence);
        continue;
      }
      in_vain |= each.tries > 0 && last_placed_ <= each.sent;
      mark_lost(sequence, counters_.timeouts);
      flight(sequence).late = true;
      // Another worker may be late instead: a switch must not flush the sum that waits for it.
      flight(sequence).gentle = each.tries == 0 && !at_end();
      ++late_;
      late_credit_ = std::max(late_credit_, 1U);
    } else {
      wake_at(due);
    }
  }
  if (in_vain && !waits_for_start()) congestion_.on_retransmission_lost(next_);
}

}  // namespace thalweg::proto
