// Training iterations as traffic. Every worker computes its layers forward and backward, and each
// layer's gradients (or, with gossip and DS-Sync, parameters) are combined by plans of their own,
// as the job's strategy says for the iteration (sync/strategy.h). Workers that average in groups
// wait only for their group, so some may be iterations ahead of others.
//
// How communication may overlap computation (`Overlap`):
//   kNone           a worker sends after its whole backward pass, and goes on when all is back
//   kWaitFree       a layer is sent when its backward pass is done (wait-free backpropagation, as
//                   DDP does); the next iteration starts when all layers are back
//   kByteScheduler  large layers are cut into partitions, front layers go first, and the next
//                   iteration's forward pass of a layer waits for that layer only (Peng et al.,
//                   SOSP 2019)
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/atp/aggregation.h"
#include "sim/hosts/connections.h"
#include "sim/workload/model.h"
#include "sim/workload/plan_run.h"
#include "sync/strategy.h"

namespace thalweg::sim {

enum class Overlap : std::uint8_t { kNone, kWaitFree, kByteScheduler };

inline constexpr Bytes kDefaultPartition{4 * 1024 * 1024};

// Traffic of parameter servers in one reading of the DLCP paper (section 5.2.1), instead of a plan:
// "workers assign tensors randomly to different parameter servers", each worker for itself, and
// large tensors are divided evenly among all servers. A server answers each message at once with as
// many bytes. The load is that of parameter servers, but no server gets a sum: for timing only.
struct ScatterOptions {
  int servers = 0;  // workers that serve too, spread evenly over the regions; 0: a plan is run
  Bytes whole;      // larger tensors are divided
  // How many iterations a worker may be ahead of the slowest when it begins one (SSP); none: any
  // number.
  std::optional<int> staleness = {};
};

struct TrainingOptions {
  std::string scheme = "ring";  // as sync::Strategy::make() takes it
  Overlap overlap = Overlap::kWaitFree;
  // The largest message that a layer is cut into, so that the steps of its plan overlap. None:
  // kByteScheduler cuts at kDefaultPartition, the others do not cut.
  std::optional<Bytes> partition = {};
  ScatterOptions scatter = {};
  int iterations = 1;
  // If set, a worker begins an iteration only if this returns true, and nobody waits for the job's
  // end (a job that only makes contention for others).
  std::function<bool()> goes_on = {};
  Duration start = {};  // after the start of the simulation
  // How much slower each worker computes than the table says; workers beyond its end have factor 1.
  std::vector<double> slowdown = {};
};

struct IterationResult {
  Time start;  // when the first worker began its forward pass
  Time end;    // when the last worker could start the next iteration
  // The longest time that a worker took from its own start to its own end. Where workers are not in
  // step this is less than duration(), and it is what ranks measure that time their own calls.
  Duration slowest_worker;
  [[nodiscard]] Duration duration() const { return end - start; }
};

// The time that a worker computed one layer.
struct ComputeSpan {
  Rank worker;
  int iteration = 0;
  int layer = 0;
  bool backward = false;
  Time start;
  Time end;
};

// Returns the aggregation of these workers of a job, for strategies whose groups switches sum.
using GroupAggregation = std::function<Result<Aggregation*>(const std::vector<Rank>& members)>;

// One job on the hosts `workers` of the network (worker i is rank i of its plans).
class TrainingJob {
 public:
  // `topology` is the job's: its hosts are the workers, in order, and plans are made for it. Fails
  // if the scheme cannot be made. With an aggregation, tensors are sent through it and no plan is
  // made. make() calls `group_aggregation` once for each group that switches sum.
  static Result<std::unique_ptr<TrainingJob>> make(const ModelTable& model,
                                                   const TrainingOptions& options,
                                                   const topology::Topology& topology,
                                                   Network& network, Connections& connections,
                                                   Aggregation* aggregation = nullptr,
                                                   const GroupAggregation& group_aggregation = {});

  // Called when a worker begins to compute a layer.
  void on_compute(std::function<void(const ComputeSpan&)> observer) {
    observer_ = std::move(observer);
  }
  void start();
  [[nodiscard]] bool waited_for() const { return !options_.goes_on; }
  [[nodiscard]] bool done() const {
    return results_.size() == static_cast<std::size_t>(options_.iterations);
  }
  [[nodiscard]] const std::vector<IterationResult>& results() const { return results_; }
  [[nodiscard]] std::size_t worker_count() const { return workers_.size(); }
  // Samples per second over all workers, without the first iteration if there are several.
  [[nodiscard]] double samples_per_second() const;
  // Bits of gradients per second that a worker has summed, over the same iterations.
  [[nodiscard]] double goodput_gbps() const;
  // [worker]: the time from the job's start to the worker's end, per iteration. Requires done().
  [[nodiscard]] std::vector<Duration> worker_paces() const;

 private:
  struct Worker {
    int iteration = 0;
    int layer = 0;  // the layer it computes or waits for
    bool backward = false;
    bool waiting = false;        // for the layer's gradients of the previous iteration
    bool held = false;           // before the next iteration, because it is too far ahead
    std::deque<Time> begun;      // when it began the iterations that it has not finished
    Time end;                    // when it finished its last iteration
    std::vector<int> layers_at;  // [layer]: iterations whose gradients are back
    [[nodiscard]] int finished() const { return *std::ranges::min_element(layers_at); }
  };

  TrainingJob(const ModelTable& model, const TrainingOptions& options, Network& network,
              Connections& connections, Aggregation* aggregation)
      : model_(model),
        options_(options),
        network_(network),
        connections_(connections),
        aggregation_(aggregation) {}

  void begin_iteration(Rank worker);
  void begin_next(Rank worker);
  [[nodiscard]] bool too_far_ahead(const Worker& worker) const;
  void release_held();
  void compute(Rank worker);
  void on_computed(Rank worker);
  void on_backward_done(Rank worker, int layer);
  void send_layer(Rank worker, int iteration, int layer);
  [[nodiscard]] std::int64_t urgency_of(int iteration, int layer) const;
  void scatter_layer(Rank worker, int iteration, int layer);
  void on_layer_back(Rank worker, int iteration, int layer);
  void finish_iteration(Rank worker);
  [[nodiscard]] double iterations_per_second() const;
  [[nodiscard]] Duration compute_time(Rank worker, Duration table_time) const;
  [[nodiscard]] int layer_count() const { return static_cast<int>(model_.layers.size()); }

  const ModelTable model_;
  const TrainingOptions options_;
  Network& network_;
  Connections& connections_;
  Aggregation* const aggregation_;  // may be null
  // How one layer is exchanged in one iteration of the strategy's period.
  struct Exchanges {
    struct Place {
      int group = -1;  // -1: the worker shares nothing in this iteration
      Rank rank;       // its rank in the group's plan
    };
    std::vector<sync::GroupPlan> groups;
    // [group]; null: not needed yet, or the group is summed in switches.
    std::vector<std::unique_ptr<RunnablePlan>> runnable;
    std::vector<Aggregation*> sums;  // [group]; null: the group has a plan
    std::vector<Place> places;       // [worker]
  };
  // An exchange under way.
  struct LayerRun {
    std::vector<std::unique_ptr<PlanRun>> groups;  // null: summed in switches
    std::vector<std::size_t> missing;  // [group]: members that have not reached this layer
    int workers_left = 0;
  };

  Status make_exchanges(const sync::Strategy& strategy, const topology::Topology& topology,
                        const GroupAggregation& group_aggregation);
  void sum_in_switches(LayerRun& run, const Exchanges& exchanges, std::size_t group, int iteration,
                       int layer);
  static Result<Exchanges> exchanges_of(std::vector<sync::GroupPlan> groups, int workers,
                                        const TrainingOptions& options);
  LayerRun& run_of(int iteration, int layer);

  // [iteration of the period][layer]; empty if tensors are scattered or aggregated.
  std::vector<std::vector<Exchanges>> exchanges_;
  Pace pace_ = Pace::kEager;
  std::vector<Rank> servers_;  // servers of scattered tensors
  std::vector<Worker> workers_;
  // [layer]: the runs by iteration, from the oldest that some worker still needs. With BSP there
  // are at most two; groups may run ahead of one another until a chain of groups ties them
  // together.
  std::vector<std::map<int, LayerRun>> runs_;
  std::vector<int> workers_done_;  // [iteration]
  std::vector<Duration> slowest_;  // [iteration]: IterationResult::slowest_worker so far
  std::vector<IterationResult> results_;
  std::vector<Time> starts_;
  std::function<void(const ComputeSpan&)> observer_;
};

}  // namespace thalweg::sim
