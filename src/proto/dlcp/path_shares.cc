#include "proto/dlcp/path_shares.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "wire/wire.h"

namespace thalweg::proto {
namespace {

// A shortfall of up to this many standard deviations of a count may be chance.
constexpr double kChance = 2;

}  // namespace

void PathShares::set_count(std::uint32_t count, Time now) {
  CHECK(count >= 1 && count <= wire::kMaxReportPaths, "{} paths", count);
  paths_.assign(count, Path());
  left_out_ = 0;
  total_weight_ = count;
  changed_us_ = wire::wire_clock(now);
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
  total_weight_ = 0;
  for (const Path& each : paths_) total_weight_ += each.weight;
  changed_us_ = wire::wire_clock(now);
}

void PathShares::bring_back(Time now) {
  for (Path& path : paths_) {
    if (path.weight > 0 || now < path.retry) continue;
    --left_out_;
    path.expected = path.received = 0;
    set_weight(path, options_.least_weight, now);
  }
}

}  // namespace thalweg::proto
