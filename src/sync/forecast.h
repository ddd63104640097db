// What a strategy costs and what it brings, before it runs: the time of an iteration's exchange by
// the fluid model (plan/cost.h) and by the paper's table II, and how fast workers agree.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/planner.h"
#include "sync/strategy.h"

namespace thalweg {

struct Forecast {
  Mixing mixing;
  // [iteration of the period]: an iteration's exchange ends with its slowest group's.
  std::vector<Duration> exchanges;
  [[nodiscard]] Duration mean() const;
  [[nodiscard]] Duration longest() const { return *std::ranges::max_element(exchanges); }
};

// Requires the strategy's own topology, in `request`; the tensor is the request's.
Result<Forecast> forecast(const Strategy& strategy, const PlanRequest& request,
                          const PlannerOptions& options);

// A layer as an iteration meets it.
struct LayerCost {
  Bytes size;
  Duration backward;
};
// An iteration whose layers, front to back, are sent when their backward pass is done, one after
// the other, each taking its share of `exchange`, and which is over when all are through.
Duration iteration_time(std::span<const LayerCost> layers, Duration forward, Duration exchange);

// What to choose among.
struct Candidate {
  std::string name;
  Duration iteration;  // mean
  int iterations_to_consensus = 1;
  std::string against = {};  // why it must not be chosen, as the end of "it …"; empty: nothing
};
struct Verdict {
  std::optional<std::size_t> best;  // none: no candidate will do
  std::string reason;               // in words
};
// The quickest of those that nothing speaks against and whose workers agree within so many
// iterations: that is what keeps the accuracy of BSP (DS-Sync, section V).
inline constexpr int kAgreeWithin = 64;
Verdict choose(std::span<const Candidate> candidates, int agree_within);

// What the formulas of table II speak of: N workers in C racks of G, a tensor of S bytes, α the
// latency of a hop, β the time a byte takes within a rack and between racks.
struct ClusterShape {
  double workers = 0;                                                 // N
  double racks = 0;                                                   // C
  Bytes size;                                                         // S
  Duration alpha;                                                     // of one message
  double beta_inside = 0;                                             // β1, seconds a byte
  double beta_between = 0;                                            // β2, the same
  [[nodiscard]] double rack_size() const { return workers / racks; }  // G
};

// N and C from the innermost regions, β1 from the slowest link within a region, β2 from the slowest
// link on a way between regions; both are the same where there is one region.
ClusterShape shape_of(const Topology& topology, Bytes size, Duration alpha);

// Table II with one invocation (L = 1), one server (P = 1) and kTreeChunks chunks (k). Nothing for
// a strategy that the table does not have. Of DS-Sync the slower of its two kinds of groups.
inline constexpr double kTreeChunks = 8;
std::optional<Duration> cost_by_table(std::string_view strategy, const ClusterShape& shape);

}  // namespace thalweg
