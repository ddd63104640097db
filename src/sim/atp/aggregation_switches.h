// The switches' side of aggregation: the stages of switch/ at every switch that aggregates, and
// the trees by which sums go to all workers of a job.
//
// A packet of the stage's kinds that reaches a switch is a gradient or update (→ the table of that
// switch, if it has one), or a sum on its way down (→ frees slots; a multicast one is copied to
// every port of the job's tree). Elements are one number a packet (sim/atp/packet_header.h).
//
// A tree starts at the edge switch of the host that the packet comes from, and follows the routes
// to the workers; where there are several, by a hash of the job. It is made anew when routes
// change.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/atp/atp_transport.h"
#include "sim/event_queue.h"
#include "sim/fabric.h"
#include "sim/network.h"
#include "sim/switch_stage.h"
#include "switch/aggregate.h"
#include "switch/switchml.h"
#include "topology/aggregation_groups.h"

namespace thalweg {

class AggregationSwitches final : public SwitchStage {
 public:
  // Fabric and events must outlive this.
  AggregationSwitches(const Topology& topology, const AggregationOptions& options,
                      EventQueue& events, Fabric& fabric);

  [[nodiscard]] bool aggregates(NodeId node) const { return sites_[node.index()] != nullptr; }
  // How a job's workers are grouped, by which switches aggregate.
  [[nodiscard]] Result<AggregationGroups> groups_of(const AggregationSpec& spec) const;
  // `job`: its number, from 0 on.
  Status add_job(std::uint32_t job, const AggregationSpec& spec, const AggregationGroups& groups);
  Status add_switchml_job(std::uint32_t job, const AggregationSpec& spec, NodeId node);

  void on_packet(std::uint32_t node, std::uint32_t place) override;
  void on_restart(std::uint32_t node) override;

  // Sums of what all switches count of a job.
  void count(std::uint32_t job, AggregationCounters& counters) const;
  // Appends what is wrong. `idle`: nothing will happen any more.
  void check(bool idle, std::vector<std::string>& violations) const;

 private:
  struct Site {
    explicit Site(const AggregateOptions& options) : atp(options), atp_values(options.slots) {}
    AggregateTable atp;
    std::optional<SwitchmlTable> switchml;  // from its first job on
    // The elements of slots.
    std::vector<std::uint32_t> atp_values;
    std::vector<std::uint32_t> switchml_values;
  };
  struct Branch {
    std::uint32_t arc = 0;
    Rank worker;  // valid: it is at the end of the arc
  };
  using Tree = std::unordered_map<std::uint32_t, std::vector<Branch>>;  // by node
  struct Job {
    const AggregationParameters* parameters = nullptr;
    std::vector<Rank> workers;
    std::uint64_t forwarded = 0;  // packets that were passed on because they had to be
    std::uint32_t tree_version = 0;
    std::unordered_map<std::uint32_t, Tree> trees;  // by root
  };

  void admit(std::uint32_t job, const AggregationSpec& spec);
  void on_gradient(std::uint32_t node, std::uint32_t place, AtpHeader& header);
  void on_update(std::uint32_t node, std::uint32_t place, AtpHeader& header);
  // What an action says of elements. Returns whether the packet goes on.
  bool apply(const AggregateAction& action, std::vector<std::uint32_t>& values,
             std::uint32_t place);
  void multicast(std::uint32_t node, std::uint32_t place);
  Tree& tree_from(std::uint32_t root, Job& job, std::uint32_t number);
  // The part of a tree from a node on, to these workers.
  void grow(Tree& tree, std::uint32_t node, const std::vector<Rank>& workers,
            std::uint32_t number) const;
  [[nodiscard]] static bool forced(const Job& job, const AtpHeader& header);
  [[nodiscard]] Site* site_of(std::uint32_t node) { return sites_[node].get(); }

  const Topology& topology_;
  EventQueue& events_;
  Fabric& fabric_;
  PacketPool& pool_;
  AggregateOptions table_options_;
  std::vector<std::unique_ptr<Site>> sites_;  // by node; empty: it only forwards
  std::vector<Job> jobs_;
};

}  // namespace thalweg
