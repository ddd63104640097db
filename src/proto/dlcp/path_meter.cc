#include "proto/dlcp/path_meter.h"

#include <algorithm>
#include <limits>

namespace thalweg::proto {
namespace {

// A sequence number this far ahead of all others is a forgery or a fault, not a loss.
constexpr std::uint64_t kMaxSequenceJump = 1U << 24;
// A packet may arrive this many times as long behind a later one as any packet seen before.
constexpr std::int64_t kOvertakenFactor = 4;
// 2^10 times any margin exceeds the longest one allowed.
constexpr std::uint32_t kMostDoublings = 10;
// A path's shortest delay follows the usual one by this part with every report, so that it is
// forgotten in some hundreds of them when the route has changed.
constexpr std::int64_t kAgeing = 512;

std::uint32_t narrow(std::uint64_t value) {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(value, std::numeric_limits<std::uint32_t>::max()));
}

std::int64_t whole_us(Duration duration) { return duration.ps() / 1'000'000; }

}  // namespace

PathMeter::PathMeter(const GraceOptions& grace, const RateControlOptions& rate)
    : grace_(grace),
      report_period_(rate.report_period),
      least_report_packets_(rate.least_report_packets) {}

bool PathMeter::plausible(std::uint64_t sequence) const {
  const std::uint64_t high = queues_[0].high.sequence;
  return !any() || sequence <= high || sequence - high <= kMaxSequenceJump;
}

void PathMeter::on_packet(const wire::DataHeader& header, bool marked, std::uint32_t path,
                          Time now) {
  const std::uint8_t queue = header.tag.priority;
  Queue& own = queues_[queue];
  const bool genuine = plausible(header.sequence);
  const bool in_order = genuine && (!own.any || header.sequence > own.high.sequence);
  prioritized_ = prioritized_ || (in_order && header.sequence < queues_[0].high.sequence);
  path = std::min(path, static_cast<std::uint32_t>(wire::kMaxReportPaths) - 1);
  if (path > 0 && path >= by_path_.size()) know_path(path);
  const std::int64_t delay = measure_delay(header, own, overtaken_by(header, path), now);
  measure_rate(header, queue, marked, path, delay, in_order, now);
  if (!by_path_.empty()) by_path_[path].heard = now;
  if (genuine) note_witness(header.sequence + 1, queue, path, delay);
  // The packet is a witness for its own queue and for more urgent ones.
  for (std::size_t i = queue + std::size_t{1}; genuine && i-- > 0;) {
    Queue& witnessed = queues_[i];
    if (witnessed.any && header.sequence <= witnessed.high.sequence) break;
    witnessed.any = true;
    witnessed.high = {header.sequence, header.sent_us, now};
    witnessed.high_delay = delay;
  }
  for (std::size_t i = queue + std::size_t{1}; i < queues_.size(); ++i) queues_[i].held = now;
  last_arrival_ = now;
}

std::optional<std::int64_t> PathMeter::overtaken_by(const wire::DataHeader& header,
                                                    std::uint32_t path) const {
  const std::uint8_t queue = header.tag.priority;
  if (!plausible(header.sequence)) return queues_[queue].high_delay;
  if (by_path_.empty()) {
    const Queue& own = queues_[queue];
    if (!own.any || header.sequence > own.high.sequence) return std::nullopt;
    return own.high_delay;
  }
  const Path::Seen& own = by_path_[path].queues[queue];
  return own.end > header.sequence ? std::optional(own.delay) : std::nullopt;
}

// Everything before took path 0.
void PathMeter::know_path(std::uint32_t path) {
  const bool first = by_path_.empty();
  by_path_.resize(path + std::size_t{1});
  if (!first || !any()) return;
  by_path_[0].heard = last_arrival_;
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    const Queue& queue = queues_[i];
    if (!queue.any) continue;
    by_path_[0].queues[i] = {std::max(queue.high.sequence + 1, queue.data_end), queue.high_delay};
  }
}

void PathMeter::note_witness(std::uint64_t end, std::uint8_t queue, std::uint32_t path,
                             std::int64_t delay) {
  if (path >= by_path_.size()) return;
  for (std::size_t i = queue + std::size_t{1}; i-- > 0;) {
    Path::Seen& seen = by_path_[path].queues[i];
    if (end <= seen.end) break;
    seen = {end, delay};
  }
}

PathMeter::Delays& PathMeter::Memory::add(std::int64_t delay, const GraceOptions& grace, Time now) {
  if (now - since >= grace.memory && stretches[0].packets >= grace.least_packets) {
    stretches[1] = stretches[0];
    stretches[0] = Delays();
    since = now;
  }
  Delays& recent = stretches[0];
  recent.least = recent.packets == 0 ? delay : std::min(recent.least, delay);
  recent.most = recent.packets == 0 ? delay : std::max(recent.most, delay);
  ++recent.packets;
  return recent;
}

PathMeter::Delays PathMeter::joined(const Delays& a, const Delays& b) {
  if (a.packets == 0) return b;
  if (b.packets == 0) return a;
  return {std::min(a.least, b.least), std::max(a.most, b.most), std::max(a.overtaken, b.overtaken),
          a.packets + b.packets};
}

PathMeter::Delays PathMeter::delays_of(std::uint8_t queue) const {
  const std::uint32_t packets = queues_[queue].memory.both().packets;
  const bool alone = prioritized_ && packets >= grace_.least_packets;
  Delays delays = alone ? Delays() : path_.both();
  for (std::size_t i = 0; i <= queue; ++i) delays = joined(delays, queues_[i].memory.both());
  delays.packets = packets;
  return delays;
}

// Returns the whole delay of the packet, in microseconds relative to base_.
std::int64_t PathMeter::measure_delay(const wire::DataHeader& header, Queue& queue,
                                      std::optional<std::int64_t> before, Time now) {
  const std::uint32_t clocks = wire::wire_clock(now) - header.sent_us;
  if (!any()) base_ = clocks;
  const std::int64_t delay = wire::wire_clock_difference(clocks, base_);
  const std::int64_t least = std::min(path_.both().least, delay);
  const std::int64_t own_delay =
      queue.held == Time() ? delay : std::min(delay, least + whole_us(now - queue.held));
  path_.add(delay, grace_, now);
  Delays& recent = queue.memory.add(own_delay, grace_, now);
  if (before) recent.overtaken = std::max(recent.overtaken, delay - *before);
  return delay;
}

void PathMeter::start_window(const Edge& edge) {
  window_open_ = true;
  first_ = edge;
  packets_received_ = 0;
  packets_marked_ = 0;
  bytes_received_ = 0;
  path_packets_.fill(0);
}

void PathMeter::measure_rate(const wire::DataHeader& header, std::uint8_t queue, bool marked,
                             std::uint32_t path, std::int64_t delay, bool in_order, Time now) {
  if (any() && now - last_arrival_ >= report_period_) window_open_ = false;
  if (queue >= edge_queue_ || now - edge_queue_arrived_ >= report_period_) {
    edge_queue_ = queue;
    edge_queue_arrived_ = now;
  }
  const bool edge = in_order && queue == edge_queue_;
  if (!window_open_) {
    if (edge) start_window({header.sequence, header.sent_us, now});
    return;
  }
  ++packets_received_;
  packets_marked_ += marked ? 1 : 0;
  bytes_received_ += header.length;
  count_path(path, delay, queue == edge_queue_);
  const bool due = now - first_.arrived >= report_period_;
  // Packets that were sent before the first edge may still arrive in a less urgent queue.
  const bool ahead = header.sequence > first_.sequence;
  if (!due || !edge || !ahead || packets_received_ < least_report_packets_) return;
  report_.first_sent_us = first_.sent_us;
  report_.last_sent_us = header.sent_us;
  report_.received_window_ns =
      narrow(static_cast<std::uint64_t>((now - first_.arrived).ps() / 1000));
  report_.packets_sent = narrow(header.sequence - first_.sequence);
  report_.packets_received = packets_received_;
  report_.packets_marked = packets_marked_;
  report_.bytes_received = bytes_received_;
  report_.paths = paths_;
  report_.path_packets = path_packets_;
  for (std::size_t i = 0; i < paths_; ++i)
    report_.path_delay_us[i] = take_queued_us(path_delays_[i]);
  report_due_ = true;
  start_window({header.sequence, header.sent_us, now});
}

void PathMeter::count_path(std::uint32_t path, std::int64_t delay, bool counts_delay) {
  if (path > 0) paths_ = std::max(paths_, static_cast<std::uint8_t>(path + 1));
  ++path_packets_[path];
  if (!counts_delay) return;
  PathDelay& seen = path_delays_[path];
  ++seen.packets;
  seen.sum_us += delay;
  seen.least_us = std::min(seen.least_us.value_or(delay), delay);
}

std::uint16_t PathMeter::take_queued_us(PathDelay& delay) {
  if (delay.packets == 0) return wire::kNoPathDelay;
  const std::int64_t queued = delay.sum_us / delay.packets - *delay.least_us;
  delay.packets = 0;
  delay.sum_us = 0;
  *delay.least_us += queued / kAgeing;
  return static_cast<std::uint16_t>(std::clamp<std::int64_t>(queued, 0, wire::kMostPathDelay));
}

std::optional<wire::ReportMessage> PathMeter::take_report() {
  if (!report_due_) return std::nullopt;
  report_due_ = false;
  return report_;
}

void PathMeter::on_data_end(std::uint64_t end_sequence, std::uint8_t queue, std::uint32_t path,
                            Time now) {
  if (!any() || !plausible(end_sequence)) return;
  path = std::min(path, static_cast<std::uint32_t>(wire::kMaxReportPaths) - 1);
  if (path < by_path_.size()) {
    note_witness(end_sequence, queue, path, by_path_[path].queues[queue].delay);
  }
  for (std::size_t i = queue + std::size_t{1}; i-- > 0;) {
    if (end_sequence <= queues_[i].data_end) break;
    queues_[i].data_end = end_sequence;
    queues_[i].data_ended = now;
  }
}

std::optional<Time> PathMeter::witness(std::uint64_t sequence, std::uint8_t queue, Time now) const {
  if (!by_path_.empty()) {
    return witnessed_by_paths(sequence, queue, now) ? std::optional(now) : std::nullopt;
  }
  const Queue& own = queues_[queue];
  if (own.any && own.high.sequence >= sequence) {
    return own.high.sequence == sequence ? own.high.arrived : now;
  }
  if (own.data_end <= sequence) return std::nullopt;
  return own.data_end - 1 == sequence ? own.data_ended : now;
}

// A path that has brought nothing for as long as delays are remembered is out of use, or dead.
bool PathMeter::witnessed_by_paths(std::uint64_t sequence, std::uint8_t queue, Time now) const {
  return std::ranges::all_of(by_path_, [&](const Path& path) {
    const bool in_use = path.heard != Time() && now - path.heard < grace_.memory;
    return !in_use || path.queues[queue].end > sequence;
  });
}

Time PathMeter::expected_by(const Stopped& stopped, Time now) const {
  const std::int64_t doubled = std::int64_t{1} << std::min(stopped.empty_rounds, kMostDoublings);
  const auto limited = [&](Duration margin) {
    return std::min(std::min(margin, grace_.most) * doubled, grace_.most);
  };
  if (!any()) return stopped.at + limited(grace_.initial);

  const Queue& own = queues_[stopped.stop.queue];
  const Delays seen = delays_of(stopped.stop.queue);
  const bool known = seen.packets >= grace_.least_packets;
  const Duration spread = Duration::microseconds(seen.most - path_.both().least);
  const std::int32_t until_us = wire::wire_clock_difference(
      stopped.stop.last_sent_us + base_ + static_cast<std::uint32_t>(seen.most),
      wire::wire_clock(now));
  const Time last_sign = std::max(stopped.at, last_arrival_);
  Time slowest =
      std::clamp(now + Duration::microseconds(until_us), stopped.at, last_sign + grace_.most);
  Duration margin = spread + grace_.least;
  if (!known) margin = std::max(margin, grace_.initial);
  // More urgent packets held the queue. How long it takes to drain depends on what has piled up.
  const Time released = std::min(own.held, stopped.at + grace_.most);
  if (own.held != Time() && released + spread > slowest) {
    slowest = std::min(released + spread, last_sign + grace_.most);
    margin = std::max(margin, grace_.initial);
  }
  const Time by_delay = slowest + limited(margin);
  if (!known || !stopped.witnessed) return by_delay;
  const Duration behind = Duration::microseconds(seen.overtaken) * kOvertakenFactor + grace_.least;
  return std::min(by_delay, std::max(stopped.at, *stopped.witnessed + limited(behind)));
}

}  // namespace thalweg::proto
