#include "proto/dlcp/grants.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "proto/dlcp/send_order.h"
#include "proto/require.h"

namespace thalweg::proto {
namespace {

constexpr double kMostOvercommit = 1000;
constexpr double kMostProducts = 1e6;
constexpr int kStallRoundTrips = 4;

}  // namespace

Status GrantOptions::validate() const {
  THALWEG_TRY_STATUS(
      require(line_rate > Bandwidth(), "grants.line_rate", to_string(line_rate), "above 0"));
  THALWEG_TRY_STATUS(require_positive(round_trip, "grants.round_trip"));
  THALWEG_TRY_STATUS(require_number(overcommit > 0 && overcommit <= kMostOvercommit,
                                    "grants.overcommit", overcommit, "above 0 and at most 1000"));
  THALWEG_TRY_STATUS(require_number(parallel >= 1, "grants.parallel", parallel, "at least 1"));
  THALWEG_TRY_STATUS(require_number(quantum >= 1, "grants.quantum", quantum, "at least 1"));
  THALWEG_TRY_STATUS(require_number(first >= 0 && first <= kMostOvercommit, "grants.first", first,
                                    "from 0 to 1000"));
  THALWEG_TRY_STATUS(require_number(busy_above > 0 && busy_above <= kMostProducts,
                                    "grants.busy_above", busy_above,
                                    "above 0 and at most 1000000"));
  THALWEG_TRY_STATUS(
      require_number(busy_parallel >= 1, "grants.busy_parallel", busy_parallel, "at least 1"));
  THALWEG_TRY_STATUS(require_positive(sight, "grants.sight"));
  THALWEG_TRY_STATUS(require_positive(stall, "grants.stall"));
  return order.validate("grants.order");
}

GrantScheduler::GrantScheduler(const GrantOptions& options)
    : options_(options), prng_(options.seed) {
  const Status valid = options.validate();
  CHECK(valid.ok(), "{}", valid.error().message());
  set_round_trip(options.round_trip);
}

void GrantScheduler::set_round_trip(Duration round_trip) {
  CHECK(round_trip > Duration());
  options_.round_trip = round_trip;
  product_ = std::llround(options_.line_rate.bytes_per_second() * round_trip.s());
  const auto products = [&](double count) {
    return static_cast<std::int64_t>(count * static_cast<double>(product_));
  };
  limit_ = products(options_.overcommit);
  busy_above_ = products(options_.busy_above);
}

GrantScheduler::Ticket GrantScheduler::open(const Incoming& incoming, Time now) {
  CHECK(incoming.segment_bytes > Bytes(0) && incoming.needed <= incoming.segments);
  now_ = now;
  auto index = static_cast<std::uint32_t>(records_.size());
  if (free_.empty()) {
    records_.emplace_back();
  } else {
    index = free_.back();
    free_.pop_back();
  }
  Record& record = records_[index];
  record = Record();
  record.in_use = true;
  record.incoming = incoming;
  record.first = first_burst(incoming, now);
  record.granted = record.first;
  record.tie = prng_.next();
  return Ticket{index};
}

// The first bursts of all peers in sight share a part of the line; each may send one segment.
std::uint32_t GrantScheduler::first_burst(const Incoming& incoming, Time now) {
  peers_[incoming.peer] = now;
  std::erase_if(peers_, [&](const auto& peer) { return peer.second + options_.sight < now; });
  const double share =
      options_.first * static_cast<double>(product_) / static_cast<double>(peers_.size());
  const double segments = share / static_cast<double>(incoming.segment_bytes.count());
  return static_cast<std::uint32_t>(std::min<double>(std::max(segments, 1.0), incoming.segments));
}

void GrantScheduler::come_into_sight(Record& record, Time now) {
  if (record.in_sight) return;
  record.in_sight = true;
  record.since = now;
}

void GrantScheduler::hear_of(Record& record, Time now) {
  now_ = now;
  come_into_sight(record, now);
  record.moved = now;
  record.silent = false;
}

Duration GrantScheduler::stall() const {
  return std::max(options_.stall, options_.round_trip * kStallRoundTrips);
}

void GrantScheduler::silence(Time now) {
  for (std::uint32_t index = 0; index < records_.size(); ++index) {
    Record& record = records_[index];
    if (record.in_flight == 0 || now < record.moved + stall()) continue;
    record.silent = true;
    update(index);
  }
}

void GrantScheduler::on_timeout(Time now) {
  const std::optional<Time> due = next_timeout();
  if (!due || now < *due) return;
  looked_at_ = now;
  silence(now);
}

std::optional<Time> GrantScheduler::next_timeout() const {
  if (wanting_.empty() || in_flight_ == 0) return std::nullopt;
  return looked_at_ + stall() / 2;
}

void GrantScheduler::progress(Ticket ticket, std::uint32_t arrived, std::uint32_t reached,
                              Time now) {
  const auto index = static_cast<std::uint32_t>(ticket);
  Record& record = records_[index];
  CHECK(record.in_use);
  hear_of(record, now);
  record.arrived = std::max(record.arrived, arrived);
  record.reached = std::max({record.reached, reached, record.arrived});
  update(index);
}

void GrantScheduler::want(Ticket ticket, std::uint32_t sent, std::uint32_t granted, bool busy,
                          Time now) {
  const auto index = static_cast<std::uint32_t>(ticket);
  Record& record = records_[index];
  CHECK(record.in_use);
  hear_of(record, now);
  record.busy = record.busy || busy;
  // A sender that asks again has waited long enough for what it sent to be here.
  if (!busy) record.reached = std::max(record.reached, std::min(sent, record.granted));
  if (record.granted > granted) soon_.push_back(index);
  update(index);
  const std::int64_t grant = options_.quantum * record.incoming.segment_bytes.count();
  if (record.queued && in_flight_ + grant > limit_) silence(now);
}

void GrantScheduler::close(Ticket ticket) {
  const auto index = static_cast<std::uint32_t>(ticket);
  Record& record = records_[index];
  CHECK(record.in_use);
  if (record.queued) wanting_.erase(record.key);
  std::erase(soon_, index);
  in_flight_ -= record.in_flight;
  record = Record();
  free_.push_back(index);
}

void GrantScheduler::update(std::uint32_t index) {
  Record& record = records_[index];
  const Incoming& incoming = record.incoming;
  const std::uint32_t lost = record.reached - record.arrived;
  record.goal = std::min(incoming.segments, incoming.needed + lost);
  const std::int64_t bytes = incoming.segment_bytes.count();
  const std::int64_t out = std::int64_t{record.granted} - std::int64_t{record.reached};
  const bool counts = !record.busy && !record.silent;
  const std::int64_t in_flight = counts ? std::max<std::int64_t>(out, 0) * bytes : 0;
  in_flight_ += in_flight - record.in_flight;
  record.in_flight = in_flight;

  const bool wants = record.granted < record.goal;
  if (busy_room(record) > 0) soon_.push_back(index);
  Key key;
  key.urgency = options_.order.by_urgency ? incoming.urgency : 0;
  key.score = options_.order.score((record.goal - record.granted) * bytes, record.since,
                                   options_.line_rate);
  key.tie = record.tie;
  key.index = index;
  const bool queue = wants && counts;
  if (record.queued && queue && record.key == key) return;
  if (record.queued) wanting_.erase(record.key);
  record.queued = queue;
  record.key = key;
  if (queue) wanting_.insert(key);
}

std::int64_t GrantScheduler::transfer_limit() const {
  const std::size_t share =
      std::clamp<std::size_t>(wanting_.size(), 1, std::size_t{options_.parallel});
  return limit_ / static_cast<std::int64_t>(share);
}

std::uint32_t GrantScheduler::busy_room(const Record& record) const {
  if (!record.busy || record.granted >= record.goal) return 0;
  const std::int64_t bytes = record.incoming.segment_bytes.count();
  const std::int64_t out = std::int64_t{record.granted} - std::int64_t{record.reached};
  const std::int64_t room =
      std::max<std::int64_t>(limit_ / options_.busy_parallel / bytes, 1) - out;
  const auto wanted = std::int64_t{record.goal - record.granted};
  // Whole grants, except for the last one and where nothing is in flight.
  const bool worth = room >= std::min<std::int64_t>(options_.quantum, wanted) || out <= 0;
  return worth ? static_cast<std::uint32_t>(std::clamp<std::int64_t>(room, 0, wanted)) : 0;
}

void GrantScheduler::give(std::uint32_t index, std::uint32_t segments, Grant& out) {
  Record& record = records_[index];
  if (record.in_flight == 0) record.moved = now_;
  record.granted += segments;
  out = {record.incoming.peer, record.incoming.transfer, record.granted};
  update(index);
}

bool GrantScheduler::poll(Grant& out) {
  if (!soon_.empty()) {
    const std::uint32_t index = soon_.back();
    soon_.pop_back();
    give(index, busy_room(records_[index]), out);
    return true;
  }
  if (wanting_.empty() || (in_flight_ > 0 && in_flight_ >= limit_)) return false;
  const std::int64_t most = transfer_limit();
  for (const Key& key : wanting_) {
    const Record& record = records_[key.index];
    const std::uint32_t segments = std::min(options_.quantum, record.goal - record.granted);
    const std::int64_t bytes = segments * record.incoming.segment_bytes.count();
    // Whoever has nothing in flight gets a grant however small the limits are.
    if (record.in_flight > 0 && record.in_flight + bytes > most) continue;
    if (in_flight_ > 0 && in_flight_ + bytes > limit_) return false;
    give(key.index, segments, out);
    return true;
  }
  return false;
}

}  // namespace thalweg::proto
