// A strategy: what the workers of a job exchange at iteration t, as plans.
//
// A user names it as a scheme of plans, and DS-Sync beside them:
//   ring, hierarchical, ps:servers=2, …   everyone averages with everyone (BSP), by that plan
//   gossip                                the dynamic exponential graph, iteration by iteration
//   local-sgd:every=8,group=ring          nothing, and each eighth time all by the plan `group`
//   asp:servers=1                         pushes to and pulls from servers that wait for nobody
//   ssp:servers=1,staleness=3             the same, but none is more than 3 iterations ahead
//   ds-sync:group=ring,across=group,slow=rack0+rack1-host4,seed=1
//                                         groups by schedule.h, averaging by the plan `group`
//                                         within a region and by `across` where they span several
//                                         (`group`: the same one), with the regions and hosts
//                                         `slow` taken for bottlenecks
//   atp                                   everyone with everyone, summed by switches on the way.
//                                         As `group` or `across` of DS-Sync: groups of
//                                         kLeastInSwitch and more are summed so, smaller ones
//                                         average by a ring, over which no more is sent
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/scheme.h"
#include "sync/mixing.h"
#include "sync/schedule.h"

namespace thalweg {

// The scheme that is no plan: switches sum what passes them.
inline constexpr std::string_view kInSwitch = "atp";
// A member sends and receives its tensor once, and once more its share of the sums as their server:
// from four members on that is less than what a ring sends.
inline constexpr std::size_t kLeastInSwitch = 4;

// What some workers do together in one iteration: a scheme of plans among them. Rank i of the plan
// is members[i].
struct Exchange {
  std::vector<Rank> members;  // all hosts of the topology, or those of a group
  std::string scheme;
  Collective collective = Collective::kAllreduce;
  [[nodiscard]] bool in_switch() const { return scheme == kInSwitch; }
};

// The same as a plan. Ranks beyond its contributors only help, and only where members are all
// hosts.
struct GroupPlan {
  std::vector<Rank> members;
  Plan plan;               // none if in_switch
  bool in_switch = false;  // all members contribute
  [[nodiscard]] int contributors() const {
    return in_switch ? static_cast<int>(members.size()) : plan.contributors;
  }
};

// Parameter servers, on workers that serve too, spread evenly over the regions.
struct ServerUse {
  int servers = 1;
  // How many iterations a worker may be ahead of the slowest; none: any number (ASP).
  std::optional<int> staleness = {};
};

class Strategy {
 public:
  // The topology must outlive the strategy; its hosts are the workers. An error if the name or a
  // parameter is wrong, or if the scheme cannot be had there.
  static Result<Strategy> make(std::string_view spec, const Topology& topology);

  [[nodiscard]] const std::string& name() const { return name_; }
  // Iteration t's exchange is that of iteration t mod period().
  [[nodiscard]] int period() const;
  // Groups of one exchange nothing and are left out: such a worker keeps what it has.
  [[nodiscard]] std::vector<Exchange> exchanges(int iteration) const;
  // The exchanges as plans of the tensor that `request` says; topology and collective are the
  // strategy's. Whoever runs a plan proves it (verify.h).
  [[nodiscard]] Result<std::vector<GroupPlan>> plans(int iteration,
                                                     const PlanRequest& request) const;
  // Not all average with all in an iteration, so that some workers may be ahead of others.
  [[nodiscard]] bool in_parts() const { return kind_ != Kind::kAll; }
  [[nodiscard]] Mixing mixing() const;
  // Some exchange of the period is summed in switches.
  [[nodiscard]] bool uses_switches() const;
  // DS-Sync's, and that of local SGD.
  [[nodiscard]] const std::optional<Schedule>& schedule() const { return schedule_; }
  // ASP's and SSP's: every worker for itself with the servers. As exchanges() and plans() it is the
  // allreduce that they would be if all were in step.
  [[nodiscard]] const std::optional<ServerUse>& servers() const { return servers_; }

 private:
  enum class Kind : std::uint8_t { kAll, kGossip, kGroups, kServers };

  Strategy(std::string_view spec, const Topology& topology) : name_(spec), topology_(&topology) {}
  Status read(std::string_view name, std::string_view parameters);
  Status read_ds_sync(std::string_view parameters);
  Status read_local_sgd(std::string_view parameters);
  Status read_servers(std::string_view name, std::string_view parameters);
  [[nodiscard]] std::string scheme_of(const Group& group) const;

  std::string name_;
  const Topology* topology_;
  Kind kind_ = Kind::kAll;
  std::string group_scheme_;
  std::string across_scheme_;
  std::optional<Schedule> schedule_;
  std::optional<ServerUse> servers_;
};

// A name of a region of the tree, or of a host of the topology, added to the bottlenecks. The error
// says what there is.
Status add_bottleneck(std::string_view name, const WorkerTree& tree, const Topology& topology,
                      Bottlenecks& bottlenecks);

}  // namespace thalweg
