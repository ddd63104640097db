// PathShares decides which of several paths to the peer the next packets take (DLCP, section 3.2.3:
// the end host controls multi-path routing, for networks that are asymmetric or have failed links).
//
// A path is a number. The driver knows what it stands for (a label, a source port), and the driver
// at the other end knows which path a packet took. Packets are distributed over the paths by share,
// as evenly as whole packets allow, so the number sent on each path between two packets is known
// without a record. Reports say how many arrived on each.
//
// Two things decide a path's share, its weight times its balance:
//
// Weight, by what arrives. A report judges a path once enough packets took it, against all others
// together: a loss or a queue that all paths share (at the receiver's own link) says nothing about
// any of them.
//   - If the path delivered less than `tolerated` of what the others delivered, by more than
//     chance, its weight shrinks to the part it delivered, times `tolerated`, so that its queue
//     drains.
//   - If the path delivered its part, its weight grows by the factor `growth`, up to that of a path
//     without fault.
//   - If its weight falls below `least_weight`, the path is left out for `retry`, and then tried
//     again with that weight.
//
// Balance, by how long packets take. Several paths may share a link that others do not take, and
// too much of the traffic: its queue grows, and long before it loses anything the sum of what the
// paths bring falls. Only differences count, since a queue at an end's own link holds up all paths
// alike. With x the time by which a path's packets wait longer than the average, x' how fast x
// grows, and d the time since delays were last compared, its balance is multiplied by
// 1 − d/T · (x/T + kDamping · x'). T is `pace`, or kWaits times the longest wait if that is more:
// what a change does is seen only after such a wait. Balances return to 1 slowly, so that those of
// paths without a queue stay there whatever the batches do to single delays.
//
// A report counts only if all packets it covers left after the last change of shares.
//
// Invariants:
// 1. Some path has a weight above 0, and the shares add up to 1.
// 2. With one path nothing changes.
// 3. The highest balance is 1, and none is below `least_weight`.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/units.h"
#include "proto/dlcp/options.h"
#include "wire/control_message.h"

namespace thalweg::proto {

class PathShares {
 public:
  explicit PathShares(const PathOptions& options) : options_(options) {}

  // From now on there are `count` paths of equal weight. Requires 1 <= count <= kMaxReportPaths.
  void set_count(std::uint32_t count, Time now);
  [[nodiscard]] std::uint32_t count() const { return static_cast<std::uint32_t>(paths_.size()); }

  // Returns the path for the next `packets` packets, which leave together now.
  std::uint32_t take(std::uint32_t packets, Time now);
  void on_report(const wire::ReportMessage& report, Time now);

  // The fraction of packets that takes this path. Requires path < count().
  [[nodiscard]] double share(std::uint32_t path) const {
    return paths_[path].weight * paths_[path].balance / total_;
  }

 private:
  struct Path {
    double weight = 1;    // 1 without fault, 0 while the path is left out
    double credit = 0;    // packets by which the path is behind its share
    double expected = 0;  // packets sent on it, by the reports since it was last judged
    double received = 0;  // packets that arrived on it, by the same reports
    Time retry;           // while it is left out: when to try it again
    double balance = 1;   // 1 for the paths of the shortest queue
    double delay_us = 0;  // summed over delay_packets, since delays were last compared
    double delay_packets = 0;
    // By how much its packets waited longer than those of all paths on average, when delays were
    // last compared, and the time before.
    std::optional<double> excess_us;
    std::optional<double> before_us;
    double next = 1;  // the balance that is being worked out
  };

  void count_report(const wire::ReportMessage& report);
  // Changes the weights of the paths that enough packets have taken.
  void judge(Time now);
  // The weight that the path should have; none while a shortfall may be chance. `others`: the part
  // of the packets on all other paths that arrived.
  [[nodiscard]] std::optional<double> judged(const Path& path, double others) const;
  void set_weight(Path& path, double weight, Time now);
  void count_delays(const wire::ReportMessage& report);
  [[nodiscard]] bool has_delays() const;
  // Compares the delays of the paths and makes their queues even.
  void balance(Time now);
  // Sets the excess of the paths by which enough packets came, and none for others. Begins anew.
  // Returns the longest wait, in µs.
  double compare_delays();
  void add_up();
  // Readmits the paths that have been left out long enough.
  void bring_back(Time now);

  PathOptions options_;
  std::uint32_t left_out_ = 0;
  double total_ = 1;              // of weight times balance
  std::uint32_t changed_us_ = 0;  // wire_clock() of the last change of shares
  Time balanced_;                 // when delays were last compared
  std::vector<Path> paths_{1};
};

}  // namespace thalweg::proto
