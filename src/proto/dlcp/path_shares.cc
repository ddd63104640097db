#include "proto/dlcp/path_shares.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "wire/wire.h"

namespace thalweg::proto {
namespace {

// A shortfall of up to this many standard deviations of a count may be chance.
constexpr double kChance = 2;
// Fewer packets say nothing of a path's delay.
constexpr double kLeastDelayed = 4;
// The control of balances: how much it is damped, how many times the longest wait in a queue it
// takes, since its effect is seen only after that, and by how much a balance changes at once.
constexpr double kDamping = 1.4;
constexpr double kWaits = 2;
constexpr double kLeastFactor = 0.7;
constexpr double kMostFactor = 1.2;
// While waits differ by more than this, what arrives in a stretch of time says nothing of losses.
constexpr double kMovingUs = 2000;
// A change below this leaves the reports that are under way as good as they were.
constexpr double kLeastChange = 0.05;
// The part of its distance from 1 by which a balance returns each time.
constexpr double kReturn = 0.005;

}  // namespace

void PathShares::set_count(std::uint32_t count, Time now) {
  CHECK(count >= 1 && count <= wire::kMaxReportPaths, "{} paths", count);
  paths_.assign(count, Path());
  left_out_ = 0;
  balanced_ = now;
  changed_us_ = wire::wire_clock(now);
  add_up();
}

void PathShares::add_up() {
  total_ = 0;
  for (const Path& path : paths_) total_ += path.weight * path.balance;
}

std::uint32_t PathShares::take(std::uint32_t packets, Time now) {
  if (count() == 1) return 0;
  if (left_out_ > 0) bring_back(now);
  std::uint32_t best = 0;
  for (std::uint32_t p = 0; p < count(); ++p) {
    paths_[p].credit += packets * share(p);
    const bool usable = paths_[p].weight > 0;
    if (usable && (paths_[best].weight == 0 || paths_[p].credit > paths_[best].credit)) best = p;
  }
  paths_[best].credit -= packets;
  return best;
}

void PathShares::on_report(const wire::ReportMessage& report, Time now) {
  if (count() == 1 || report.packets_received == 0) return;
  if (wire::wire_clock_difference(report.first_sent_us, changed_us_) < 0) return;
  count_report(report);
  judge(now);
  count_delays(report);
  if (has_delays()) balance(now);
}

void PathShares::judge(Time now) {
  double expected = 0;
  double received = 0;
  for (const Path& path : paths_) {
    expected += path.expected;
    received += path.received;
  }
  for (Path& path : paths_) {
    if (path.weight == 0 || path.expected < options_.least_packets) continue;
    const double other_expected = expected - path.expected;
    if (other_expected < options_.least_packets) continue;
    const auto weight = judged(path, (received - path.received) / other_expected);
    if (!weight) continue;
    path.expected = path.received = 0;
    if (*weight != path.weight) set_weight(path, *weight, now);
  }
}

void PathShares::count_report(const wire::ReportMessage& report) {
  for (std::uint32_t p = 0; p < count(); ++p) {
    paths_[p].expected += report.packets_sent * share(p);
    if (p < report.paths) paths_[p].received += report.path_packets[p];
  }
  // A report without path counts: all packets took the first path.
  if (report.paths == 0) paths_[0].received += report.packets_received;
}

std::optional<double> PathShares::judged(const Path& path, double others) const {
  const double due = path.expected * others;
  if (path.received >= options_.tolerated * due) {
    return std::min(1.0, path.weight * options_.growth);
  }
  if (due - path.received <= kChance * std::sqrt(due)) return std::nullopt;
  return path.weight * options_.tolerated * path.received / due;
}

// The last path in use is never left out.
void PathShares::set_weight(Path& path, double weight, Time now) {
  const bool last = left_out_ + 1 == count();
  if (weight < options_.least_weight) {
    weight = last ? options_.least_weight : 0;
    if (!last) {
      path.retry = now + options_.retry;
      path.credit = 0;
      ++left_out_;
    }
  }
  path.weight = weight;
  changed_us_ = wire::wire_clock(now);
  add_up();
}

void PathShares::bring_back(Time now) {
  for (Path& path : paths_) {
    if (path.weight > 0 || now < path.retry) continue;
    --left_out_;
    path.expected = path.received = 0;
    set_weight(path, options_.least_weight, now);
  }
}

void PathShares::count_delays(const wire::ReportMessage& report) {
  for (std::size_t p = 0; p < std::min<std::size_t>(report.paths, paths_.size()); ++p) {
    if (report.path_delay_us[p] == wire::kNoPathDelay) continue;
    paths_[p].delay_us += static_cast<double>(report.path_delay_us[p]) * report.path_packets[p];
    paths_[p].delay_packets += report.path_packets[p];
  }
}

bool PathShares::has_delays() const {
  double packets = 0;
  for (const Path& path : paths_) packets += path.delay_packets;
  return options_.pace > Duration() && packets >= options_.packets_per_path * count();
}

double PathShares::compare_delays() {
  double longest_us = 0;
  double sum = 0;
  double shares = 0;
  for (std::uint32_t p = 0; p < count(); ++p) {
    Path& path = paths_[p];
    path.before_us = std::exchange(path.excess_us, std::nullopt);
    if (path.delay_packets >= kLeastDelayed && path.weight > 0) {
      path.excess_us = path.delay_us / path.delay_packets;
      longest_us = std::max(longest_us, *path.excess_us);
      sum += *path.excess_us * share(p);
      shares += share(p);
    }
    path.delay_us = path.delay_packets = 0;
  }
  for (Path& path : paths_) {
    if (path.excess_us) *path.excess_us -= sum / shares;
  }
  return longest_us;
}

void PathShares::balance(Time now) {
  const double elapsed_us = std::max((now - balanced_).us(), 1.0);
  balanced_ = now;
  const double pace_us = std::max(options_.pace.us(), kWaits * compare_delays());
  const double step = std::min(elapsed_us / pace_us, 1.0);
  double most = 0;
  bool moving = false;
  for (Path& path : paths_) {
    path.next = path.balance + (1 - path.balance) * kReturn;
    if (path.excess_us) {
      const double excess_us = *path.excess_us;
      const double growth = (excess_us - path.before_us.value_or(excess_us)) / elapsed_us;
      const double factor = 1 - step * (excess_us / pace_us + kDamping * growth);
      path.next *= std::clamp(factor, kLeastFactor, kMostFactor);
      moving = moving || std::abs(excess_us) > kMovingUs;
    }
    most = std::max(most, path.next);
  }
  double change = 0;
  for (Path& path : paths_) {
    const double next = std::max(path.next / most, options_.least_weight);
    change = std::max(change, std::abs(next / path.balance - 1));
    path.balance = next;
    if (moving) path.expected = path.received = 0;
  }
  add_up();
  if (change >= kLeastChange) changed_us_ = wire::wire_clock(now);
}

}  // namespace thalweg::proto
