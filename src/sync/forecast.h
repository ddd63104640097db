// Predicts a strategy's cost and effect before it runs: the time of an iteration's exchange by the
// fluid model (plan/cost.h) and by the paper's table II, and how fast workers agree.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/planner.h"
#include "sync/strategy.h"

namespace thalweg::sync {

struct Forecast {
  Mixing mixing;
  // [iteration of the period]: an iteration's exchange ends when its slowest group's does.
  std::vector<Duration> exchanges;
  [[nodiscard]] Duration mean() const;
  [[nodiscard]] Duration longest() const { return *std::ranges::max_element(exchanges); }
};

// Requires in `request` the strategy's own topology; the tensor is that of the request.
Result<Forecast> forecast(const Strategy& strategy, const plan::PlanRequest& request,
                          const plan::PlannerOptions& options);

// The cost of one layer in an iteration.
struct LayerCost {
  Bytes size;
  Duration backward;
};
// The time of an iteration whose layers, listed front to back, are sent when their backward pass is
// done, one after the other. Each takes its share of `exchange`; the iteration is over when all
// have been exchanged.
Duration iteration_time(std::span<const LayerCost> layers, Duration forward, Duration exchange);

// A strategy to choose from.
struct Candidate {
  std::string name;
  Duration iteration;  // mean time of an iteration
  int iterations_to_consensus = 1;
  std::string drawback = {};  // why it must not be chosen, as the end of "it …"; empty: it may be
};
struct Verdict {
  std::optional<std::size_t> best;  // none: no candidate may be chosen
  std::string reason;               // for people
};
// Chooses the fastest candidate that has no drawback and whose workers agree within `agree_within`
// iterations, which is what keeps the accuracy of BSP (DS-Sync, section V).
inline constexpr int kAgreeWithin = 64;
Verdict choose(std::span<const Candidate> candidates, int agree_within);

// The variables of table II's formulas: N workers in C racks of G, a tensor of S bytes, α the
// latency of a hop, β the time of a byte within a rack and between racks.
struct ClusterShape {
  double workers = 0;                                                 // N
  double racks = 0;                                                   // C
  Bytes size;                                                         // S
  Duration alpha;                                                     // α, of one message
  double beta_inside = 0;                                             // β1, seconds per byte
  double beta_between = 0;                                            // β2, seconds per byte
  [[nodiscard]] double rack_size() const { return workers / racks; }  // G
};

// Takes N and C from the innermost regions, β1 from the slowest link within a region, and β2 from
// the slowest link on a path between regions. With one region both are the same.
ClusterShape shape_of(const topology::Topology& topology, Bytes size, Duration alpha);

// The time by table II with one invocation (L = 1), one server (P = 1) and kTreeChunks chunks (k);
// for DS-Sync that of the slower of its two kinds of groups. Empty for a strategy that the table
// does not have.
inline constexpr double kTreeChunks = 8;
std::optional<Duration> cost_by_table(std::string_view strategy, const ClusterShape& shape);

}  // namespace thalweg::sync
