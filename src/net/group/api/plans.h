// Chooses and makes the plan that an operation runs, and keeps it for the next one.
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

namespace thalweg::net {

// A plan with one rank's part of it.
struct PreparedPlan {
  plan::Plan plan;
  exec::RankPlan rank_plan;
};

// The scheme of a collective of so many bytes, where neither the caller nor a topology decides.
[[nodiscard]] const char* usual_scheme(plan::Collective collective, std::int64_t bytes, int ranks,
                                       bool several_hosts);

class Plans {
 public:
  // `topology` and `scheme` are those of CommunicatorOptions. `scheme` is used unless a call names
  // one. Empty: chosen by the size of the tensor, or by the planner if there is a topology. Every
  // rank chooses for itself by what is the same on all; if ranks differ all the same, the call
  // fails on all of them with both schemes' names. `several_hosts`: whether the job has ranks on
  // several hosts.
  static Result<std::unique_ptr<Plans>> make(int ranks, int rank, const std::string& topology,
                                             const std::string& scheme, bool several_hosts);

  struct Request {
    plan::Collective collective = plan::Collective::kAllreduce;
    std::int64_t elements = 0;  // above 0
    int element_bytes = 4;
    int root = 0;
    std::string_view scheme;  // empty: the scheme given to make()
  };
  // Whether the topology was told, and has racks.
  [[nodiscard]] bool has_racks() const { return choose_ && topology_.regions().size() > 2; }
  // Returns a plan that was proved (plan/verify.h). Any thread may call it.
  Result<std::shared_ptr<const PreparedPlan>> get(const Request& request);
  // Whether an allreduce is predicted to take less time if a switch sums it (plan/in_network.h)
  // than by the plan that get() returns. The call fills in the elements and the agreement of `how`.
  // Any thread may call it.
  Result<bool> faster_in_network(const Request& request, plan::InNetworkRequest how);

 private:
  using Key = std::tuple<plan::Collective, std::int64_t, int, int, std::string>;

  Plans(topology::Topology topology, int rank, bool choose, std::string scheme, bool several_hosts)
      : topology_(std::move(topology)),
        rank_(rank),
        choose_(choose),
        scheme_(std::move(scheme)),
        several_hosts_(several_hosts) {}
  Result<plan::Plan> plan_for(const Request& request) const;
  static Key key_of(const Request& request);
  Result<Duration> predicted(const Request& request);

  topology::Topology topology_;
  int rank_;
  bool choose_;  // let the planner choose the scheme
  std::string scheme_;
  bool several_hosts_;
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<const PreparedPlan>> plans_;  // guarded by mutex_
  std::map<Key, bool> in_network_;                            // guarded by mutex_
};

}  // namespace thalweg::net
