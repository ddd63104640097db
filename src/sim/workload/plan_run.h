// Runs a plan as traffic. What a rank may send is decided by exec/progress.h, as on sockets, in one
// of two ways (ConnectionOptions::in_pieces):
//
//   whole chunks   a transfer is a message that leaves when all of it is there, and is applied when
//                  all of it has arrived: store and forward
//   pieces         a piece (a full packet of TCP, a segment of DLCP) is applied and forwarded when
//                  it arrives, as communicators do: cut-through
//
// Nothing is added up here: pieces are only counted. What a transfer of DLCP lacks within its bound
// takes its turn when the transfer ends.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "exec/rank_plan.h"
#include "plan/plan.h"
#include "sim/hosts/connections.h"

namespace thalweg::sim {

// When a transfer may leave. kEager: as soon as its source has what it carries, for targets that
// keep it until they need it. kRendezvous: not before the target has started too, for targets that
// receive in place and hold the sender back until then, as flow control does.
enum class Pace : std::uint8_t { kEager, kRendezvous };

// A plan as its ranks run it, for any number of runs.
struct RunnablePlan {
  // Requires a plan that was proved.
  explicit RunnablePlan(const plan::Plan& plan)
      : contributors(plan.contributors), ranks(exec::RankPlan::of_all(plan)) {}

  int contributors;
  std::vector<exec::RankPlan> ranks;
};

struct PlanRunOptions {
  // Called once for every contributor, when it has all it waits for.
  std::function<void(Rank)> rank_done;
  std::int64_t urgency = 0;   // lower goes first on a connection
  std::uint8_t priority = 1;  // the queue of DLCP's data
  // Rank i of the plan is members[i] of the connections, or i if this is empty. The members must
  // outlive the run.
  std::span<const Rank> members = {};
  Pace pace = Pace::kEager;
};

class PlanRun {
 public:
  // Plan and connections must outlive the run. Sums travel as pulls. The ranks that only help are
  // started at once.
  static std::unique_ptr<PlanRun> make(const RunnablePlan& plan, Connections& connections,
                                       PlanRunOptions options);
  PlanRun() = default;
  PlanRun(const PlanRun&) = delete;
  PlanRun& operator=(const PlanRun&) = delete;
  virtual ~PlanRun() = default;

  // The rank's own contribution is ready. Called once per contributor.
  virtual void start(Rank rank) = 0;
};

}  // namespace thalweg::sim
