// A strategy: what the workers of a job exchange at iteration t, as plans.
//
// A user gives the name of a plan scheme, or of one of the other strategies:
//   ring, hierarchical, ps:servers=2, …   all workers average with all (BSP), by that plan
//   gossip                                the dynamic exponential graph, iteration by iteration
//   local-sgd:every=8,group=ring          no exchange, but every eighth time all by the plan
//   `group` asp:servers=1                         pushes to and pulls from servers, which wait for
//   no worker ssp:servers=1,staleness=3             the same, but no worker is more than 3
//   iterations ahead ds-sync:group=ring,across=group,slow=rack0+rack1-host4,seed=1
//                                         groups by schedule.h, which average by the plan `group`
//                                         within a region and by `across` if they span several
//                                         (`group`: the same plan); `slow` lists the regions and
//                                         hosts that count as bottlenecks
//   atp                                   all workers with all, summed by switches on the way.
//                                         As `group` or `across` of DS-Sync: switches sum groups of
//                                         kLeastInSwitch members and more; smaller ones average by
//                                         a ring, over which no more is sent
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/scheme.h"
#include "sync/mixing.h"
#include "sync/schedule.h"

namespace thalweg::sync {

// The scheme that has no plan: switches sum the packets that pass through them.
inline constexpr std::string_view kInSwitch = "atp";
// A member sends and receives its tensor once, and once more its share of the sums as their server.
// From four members on, that is less than what a ring sends.
inline constexpr std::size_t kLeastInSwitch = 4;

// What some workers do together in one iteration, by a plan scheme. Rank i of the plan is
// members[i].
struct Exchange {
  std::vector<Rank> members;  // all hosts of the topology, or those of a group
  std::string scheme;
  plan::Collective collective = plan::Collective::kAllreduce;
  [[nodiscard]] bool in_switch() const { return scheme == kInSwitch; }
};

// An exchange as a plan. Ranks beyond the plan's contributors only help; there are such ranks only
// if the members are all hosts.
struct GroupPlan {
  std::vector<Rank> members;
  plan::Plan plan;         // empty if in_switch
  bool in_switch = false;  // all members contribute
  [[nodiscard]] int contributors() const {
    return in_switch ? static_cast<int>(members.size()) : plan.contributors;
  }
};

// Parameter servers on workers that serve too, spread evenly over the regions.
struct ServerUse {
  int servers = 1;
  // How many iterations a worker may be ahead of the slowest; none: any number (ASP).
  std::optional<int> staleness = {};
};

class Strategy {
 public:
  // The topology must outlive the strategy; its hosts are the workers. Fails if the name or a
  // parameter is wrong, or if the scheme cannot be made for the topology.
  static Result<Strategy> make(std::string_view spec, const topology::Topology& topology);

  [[nodiscard]] const std::string& name() const { return name_; }
  // Iteration t's exchange is that of iteration t mod period().
  [[nodiscard]] int period() const;
  // Groups of one worker exchange nothing and are left out: that worker keeps its model.
  [[nodiscard]] std::vector<Exchange> exchanges(int iteration) const;
  // The exchanges as plans for the tensor of `request`; topology and collective are the strategy's.
  // The caller must verify a plan before it runs it (verify.h).
  [[nodiscard]] Result<std::vector<GroupPlan>> plans(int iteration,
                                                     const plan::PlanRequest& request) const;
  // Whether not all workers average with all in an iteration, so that some may be ahead of others.
  [[nodiscard]] bool in_parts() const { return kind_ != Kind::kAll; }
  [[nodiscard]] Mixing mixing() const;
  // Whether switches sum some exchange of the period.
  [[nodiscard]] bool uses_switches() const;
  // The schedule of DS-Sync or of local SGD.
  [[nodiscard]] const std::optional<Schedule>& schedule() const { return schedule_; }
  // The servers of ASP or SSP, with which every worker exchanges on its own. exchanges() and
  // plans() give the allreduce that they would be if all workers were in step.
  [[nodiscard]] const std::optional<ServerUse>& servers() const { return servers_; }

 private:
  enum class Kind : std::uint8_t { kAll, kGossip, kGroups, kServers };

  Strategy(std::string_view spec, const topology::Topology& topology)
      : name_(spec), topology_(&topology) {}
  Status read(std::string_view name, std::string_view parameters);
  Status read_ds_sync(std::string_view parameters);
  Status read_local_sgd(std::string_view parameters);
  Status read_servers(std::string_view name, std::string_view parameters);
  [[nodiscard]] std::string scheme_of(const Group& group) const;

  std::string name_;
  const topology::Topology* topology_;
  Kind kind_ = Kind::kAll;
  std::string group_scheme_;
  std::string across_scheme_;
  std::optional<Schedule> schedule_;
  std::optional<ServerUse> servers_;
};

// Adds a region of the tree or a host of the topology, by its name, to the bottlenecks. An error
// lists the names.
Status add_bottleneck(std::string_view name, const WorkerTree& tree,
                      const topology::Topology& topology, Bottlenecks& bottlenecks);

}  // namespace thalweg::sync
