// Which plan an operation runs, made once and kept.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>

#include <thalweg/result.h>

#include "exec/rank_plan.h"
#include "plan/in_network.h"
#include "plan/plan.h"
#include "topology/topology.h"

namespace thalweg {

// A plan with one rank's part of it.
struct PreparedPlan {
  Plan plan;
  RankPlan rank_plan;
};

class Plans {
 public:
  // `topology`: as CommunicatorOptions has it. `scheme`: used unless a call names one; empty: by
  // the size of the tensor, or the planner's choice if there is a topology.
  static Result<std::unique_ptr<Plans>> make(int ranks, int rank, const std::string& topology,
                                             const std::string& scheme);

  struct Request {
    Collective collective = Collective::kAllreduce;
    std::int64_t elements = 0;  // above 0
    int element_bytes = 4;
    int root = 0;
    std::string_view scheme;  // empty: as make() says
  };
  // Proved. From any thread.
  Result<std::shared_ptr<const PreparedPlan>> get(const Request& request);
  // Whether an allreduce is predicted to take less time if a switch sums it (plan/in_network.h)
  // than by the plan that get() gives. `how`: its elements and agreement are filled in here. From
  // any thread.
  Result<bool> faster_in_network(const Request& request, InNetworkRequest how);

 private:
  using Key = std::tuple<Collective, std::int64_t, int, int, std::string>;

  Plans(Topology topology, int rank, bool choose, std::string scheme)
      : topology_(std::move(topology)), rank_(rank), choose_(choose), scheme_(std::move(scheme)) {}
  Result<Plan> plan_for(const Request& request) const;
  static Key key_of(const Request& request);
  Result<Duration> predicted(const Request& request);

  Topology topology_;
  int rank_;
  bool choose_;  // by the planner
  std::string scheme_;
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<const PreparedPlan>> plans_;  // with mutex_
  std::map<Key, bool> in_network_;                            // with mutex_
};

}  // namespace thalweg
