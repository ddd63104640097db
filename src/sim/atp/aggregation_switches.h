// The switches' side of aggregation: the stages of switch/ at every switch that aggregates, and the
// trees along which sums reach all workers of a job.
//
// An aggregation packet that reaches a switch is either a gradient or an update, which goes to the
// table of that switch if it has one, or a sum on its way down, which frees slots; a multicast sum
// is copied to every port of the job's tree. One number stands for all elements of a packet
// (sim/atp/packet_header.h).
//
// A tree starts at the edge switch of the host that the packet comes from, and follows the routes
// to the workers; where there are several routes, a hash of the job chooses one. A tree is made
// anew when routes change.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "proto/atp/options.h"
#include "sim/atp/atp_transport.h"
#include "sim/baselines/switchml_switch.h"
#include "sim/core/event_queue.h"
#include "sim/core/fabric.h"
#include "sim/core/network.h"
#include "sim/core/switch_stage.h"
#include "switch/aggregation/aggregate.h"
#include "topology/aggregation_groups.h"

namespace thalweg::sim {

class AggregationSwitches final : public SwitchStage {
 public:
  // The topology, the events and the fabric must outlive this object.
  AggregationSwitches(const topology::Topology& topology, const AggregationOptions& options,
                      EventQueue& events, Fabric& fabric);

  [[nodiscard]] bool aggregates(topology::NodeId node) const {
    return sites_[node.index()] != nullptr;
  }
  // Groups the job's workers by the switches that aggregate for them.
  [[nodiscard]] Result<topology::AggregationGroups> groups_of(const AggregationSpec& spec) const;
  // `job` is the job's number; jobs are numbered from 0 on in the order in which they are added.
  // `seats`: proto::AtpWorkerOptions::seats.
  Status add_job(std::uint32_t job, const AggregationSpec& spec,
                 const topology::AggregationGroups& groups,
                 const std::vector<std::optional<proto::AtpSeat>>& seats);
  Status add_switchml_job(std::uint32_t job, const AggregationSpec& spec, topology::NodeId node);

  void on_packet(std::uint32_t node, std::uint32_t place) override;
  void on_restart(std::uint32_t node) override;

  // Adds what all switches counted for the job to `counters`.
  void count(std::uint32_t job, AggregationCounters& counters) const;
  // Appends a message for each invariant that does not hold. `idle`: no event is left.
  void check(bool idle, std::vector<std::string>& violations) const;

 private:
  struct Site {
    explicit Site(const switches::AggregateOptions& options)
        : atp(options), atp_values(options.slots) {}
    switches::AggregateTable atp;
    std::optional<SwitchmlTable> switchml;  // made for its first job
    // The value of each slot.
    std::vector<std::uint32_t> atp_values;
    std::vector<std::uint32_t> switchml_values;
  };
  struct Branch {
    std::uint32_t arc = 0;
    Rank worker;  // set if the worker is at the end of the arc
  };
  using Tree = std::unordered_map<std::uint32_t, std::vector<Branch>>;  // by node
  struct Job {
    const AggregationParameters* parameters = nullptr;
    std::vector<Rank> workers;
    std::vector<Rank> servers;
    std::vector<std::optional<proto::AtpSeat>> seats;
    // Packets passed on because AggregationParameters::forwarding says so.
    std::uint64_t forwarded = 0;
    std::uint32_t tree_version = 0;
    std::unordered_map<std::uint32_t, Tree> trees;  // by the tree's root node
  };

  void admit(std::uint32_t job, const AggregationSpec& spec);
  void on_gradient(std::uint32_t node, std::uint32_t place, wire::AtpHeader& header);
  void on_update(std::uint32_t node, std::uint32_t place, wire::AtpHeader& header);
  void report(std::uint32_t node, std::uint32_t place, const wire::AtpHeader& missing);
  // Does to the slots' values what the action says. Returns whether the packet goes on.
  bool apply(const switches::AggregateAction& action, std::vector<std::uint32_t>& values,
             std::uint32_t place);
  // `except`: the host that gets no copy, if it is valid.
  void multicast(std::uint32_t node, std::uint32_t place, Rank except = {});
  // Whether the server of the sequence is on a worker's host and has that worker's gradients and
  // sums without a packet.
  [[nodiscard]] static bool own_sum(const Job& job, std::uint64_t sequence) {
    return !job.seats.empty() && job.seats[sequence % job.seats.size()].has_value();
  }
  // That server, if the host is it for some sequences.
  [[nodiscard]] static std::optional<switches::AggregateTable::OwnServer> own_server(const Job& job,
                                                                                     Rank host);
  Tree& tree_from(std::uint32_t root, Job& job, std::uint32_t number);
  // Adds the part of the tree that leads from `node` to these workers.
  void grow(Tree& tree, std::uint32_t node, const std::vector<Rank>& workers,
            std::uint32_t number) const;
  [[nodiscard]] static bool forced(const Job& job, const wire::AtpHeader& header);
  [[nodiscard]] Site* site_of(std::uint32_t node) { return sites_[node].get(); }

  const topology::Topology& topology_;
  EventQueue& events_;
  Fabric& fabric_;
  PacketPool& pool_;
  switches::AggregateOptions table_options_;
  std::vector<std::unique_ptr<Site>> sites_;  // by node; null: the switch only forwards
  std::vector<Job> jobs_;
};

}  // namespace thalweg::sim
