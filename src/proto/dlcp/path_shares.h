// Which of several paths to the peer the next packets take (DLCP, section 3.2.3: the end host has
// the control of multi-path routing, for networks that are not symmetric or have failed links).
//
// A path is a number; the driver knows what it stands for (a label, a source port) and says at the
// other end by which one a packet came. Packets are dealt over the paths by share, as evenly as
// whole packets can be, so what was sent by each between two packets is known without a record.
// Reports say what arrived by each.
//
// Rule. A report judges a path once enough packets went that way, against all others together: a
// loss or a queue that all paths share (at the receiver's own link) says nothing about any of them.
//   - It brought less than `tolerated` of what the others did: once that is more than chance, its
//     weight shrinks to what it brought, times `tolerated`, so that what waits there drains.
//   - It brought its part: its weight grows by `growth`, up to that of a path without fault.
//   - Its weight falls below `least_weight`: the path is left out for `retry`, and then tried again
//     with that weight.
// A report counts only if all that it speaks of left after the last change of shares.
//
// Invariants:
// 1. Some path has a weight above 0, and shares add up to 1.
// 2. With one path nothing changes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/units.h"
#include "proto/dlcp/options.h"
#include "wire/control_message.h"

namespace thalweg {

class PathShares {
 public:
  explicit PathShares(const PathOptions& options) : options_(options) {}

  // From now on there are so many paths, all alike. Requires 1 <= count <= kMaxReportPaths.
  void set_count(std::uint32_t count, Time now);
  [[nodiscard]] std::uint32_t count() const { return static_cast<std::uint32_t>(paths_.size()); }

  // The path of the next `packets` packets, which leave now, together.
  std::uint32_t take(std::uint32_t packets, Time now);
  void on_report(const ReportMessage& report, Time now);

  // The part of the packets that takes this path. Requires path < count().
  [[nodiscard]] double share(std::uint32_t path) const {
    return paths_[path].weight / total_weight_;
  }

 private:
  struct Path {
    double weight = 1;    // 1 without fault, 0 while it is left out
    double credit = 0;    // packets that it is behind its share
    double expected = 0;  // packets sent by it, of the reports since it was judged
    double received = 0;
    Time retry;  // left out: until then
  };

  void count_report(const ReportMessage& report);
  // The weight that the path should have; none while that may be chance. `others`: the part that
  // arrived by all others.
  [[nodiscard]] std::optional<double> judged(const Path& path, double others) const;
  void set_weight(Path& path, double weight, Time now);
  void bring_back(Time now);

  PathOptions options_;
  std::uint32_t left_out_ = 0;
  double total_weight_ = 1;
  std::uint32_t changed_us_ = 0;  // wire_clock() of the last change of shares
  std::vector<Path> paths_{1};
};

}  // namespace thalweg
