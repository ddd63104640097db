#include "proto/dlcp/path_meter.h"

#include <algorithm>
#include <limits>

namespace thalweg {
namespace {

// A sequence number this far ahead of all others is a forgery or a fault, not a loss.
constexpr std::uint64_t kMaxSequenceJump = 1U << 24;
// A packet may come this many times as long behind a later one as any before it.
constexpr std::int64_t kOvertakenFactor = 4;
// 2^10 times any margin is more than the longest allowed.
constexpr std::uint32_t kMostDoublings = 10;

std::uint32_t narrow(std::uint64_t value) {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(value, std::numeric_limits<std::uint32_t>::max()));
}

}  // namespace

PathMeter::PathMeter(const GraceOptions& grace, const RateControlOptions& rate)
    : grace_(grace),
      report_period_(rate.report_period),
      least_report_packets_(rate.least_report_packets) {}

void PathMeter::on_packet(const DataHeader& header, bool marked, std::uint32_t path, Time now) {
  const bool in_order = !any_ || (header.sequence > high_.sequence &&
                                  header.sequence - high_.sequence <= kMaxSequenceJump);
  measure_delay(header, now, in_order);
  measure_rate(header, marked, path, now, in_order);
  if (in_order) high_ = {header.sequence, header.sent_us, now};
  last_arrival_ = now;
  any_ = true;
}

void PathMeter::measure_delay(const DataHeader& header, Time now, bool in_order) {
  const std::uint32_t clocks = wire_clock(now) - header.sent_us;
  if (!any_) base_ = clocks;
  const std::int64_t delay = wire_clock_difference(clocks, base_);
  if (now - memory_since_ >= grace_.memory && memory_[0].packets >= grace_.least_packets) {
    memory_[1] = memory_[0];
    memory_[0] = Delays();
    memory_since_ = now;
  }
  Delays& recent = memory_[0];
  recent.least = recent.packets == 0 ? delay : std::min(recent.least, delay);
  recent.most = recent.packets == 0 ? delay : std::max(recent.most, delay);
  if (in_order) {
    high_delay_ = delay;
  } else {
    recent.overtaken = std::max(recent.overtaken, delay - high_delay_);
  }
  ++recent.packets;
}

PathMeter::Delays PathMeter::delays() const {
  const Delays& recent = memory_[0];
  const Delays& before = memory_[1];
  if (before.packets == 0) return recent;
  if (recent.packets == 0) return before;
  return {std::min(recent.least, before.least), std::max(recent.most, before.most),
          std::max(recent.overtaken, before.overtaken), recent.packets + before.packets};
}

void PathMeter::start_window(const Edge& edge) {
  window_open_ = true;
  first_ = edge;
  packets_received_ = 0;
  packets_marked_ = 0;
  bytes_received_ = 0;
  path_packets_.fill(0);
}

void PathMeter::measure_rate(const DataHeader& header, bool marked, std::uint32_t path, Time now,
                             bool in_order) {
  if (any_ && now - last_arrival_ >= report_period_) window_open_ = false;
  if (!window_open_) {
    if (in_order) start_window({header.sequence, header.sent_us, now});
    return;
  }
  ++packets_received_;
  packets_marked_ += marked ? 1 : 0;
  bytes_received_ += header.length;
  count_path(path);
  const bool due = now - first_.arrived >= report_period_;
  if (!due || !in_order || packets_received_ < least_report_packets_) return;
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
  report_due_ = true;
  start_window({header.sequence, header.sent_us, now});
}

void PathMeter::count_path(std::uint32_t path) {
  path = std::min(path, static_cast<std::uint32_t>(kMaxReportPaths) - 1);
  if (path > 0) paths_ = std::max(paths_, static_cast<std::uint8_t>(path + 1));
  ++path_packets_[path];
}

std::optional<ReportMessage> PathMeter::take_report() {
  if (!report_due_) return std::nullopt;
  report_due_ = false;
  return report_;
}

void PathMeter::on_data_end(std::uint64_t end_sequence, Time now) {
  if (!any_ || end_sequence <= data_end_) return;
  if (end_sequence > high_.sequence && end_sequence - high_.sequence > kMaxSequenceJump) return;
  data_end_ = end_sequence;
  data_ended_ = now;
}

std::optional<Time> PathMeter::witness(std::uint64_t sequence, Time now) const {
  if (any_ && high_.sequence >= sequence) return high_.sequence == sequence ? high_.arrived : now;
  if (data_end_ <= sequence) return std::nullopt;
  return data_end_ - 1 == sequence ? data_ended_ : now;
}

Time PathMeter::expected_by(const Stopped& stopped, Time now) const {
  const std::int64_t doubled = std::int64_t{1} << std::min(stopped.empty_rounds, kMostDoublings);
  const auto limited = [&](Duration margin) {
    return std::min(std::min(margin, grace_.most) * doubled, grace_.most);
  };
  if (!any_) return stopped.at + limited(grace_.initial);

  const Delays seen = delays();
  const bool known = seen.packets >= grace_.least_packets;
  Duration margin = Duration::microseconds(seen.most - seen.least) + grace_.least;
  if (!known) margin = std::max(margin, grace_.initial);
  const std::int32_t until_us = wire_clock_difference(
      stopped.stop.last_sent_us + base_ + static_cast<std::uint32_t>(seen.most), wire_clock(now));
  const Time last_sign = std::max(stopped.at, last_arrival_);
  const Time slowest =
      std::clamp(now + Duration::microseconds(until_us), stopped.at, last_sign + grace_.most);
  const Time by_delay = slowest + limited(margin);
  if (!known || !stopped.witnessed) return by_delay;
  const Duration behind = Duration::microseconds(seen.overtaken) * kOvertakenFactor + grace_.least;
  return std::min(by_delay, std::max(stopped.at, *stopped.witnessed + limited(behind)));
}

}  // namespace thalweg
