// Training iterations as traffic: every worker computes its layers forward and backward, and each
// layer's gradients (or, by gossip and DS-Sync, parameters) are combined by plans of their own, as
// the job's strategy says for the iteration (sync/strategy.h). Workers that average in groups wait
// for their group only, so that some may be iterations ahead of others.
//
// When communication may overlap computation (`Overlap`):
//   kNone           a worker sends after its whole backward pass, and goes on when all is back
//   kWaitFree       a layer is sent when its backward pass is done (wait-free backpropagation, as
//                   DDP does); the next iteration starts when all layers are back
//   kByteScheduler  large layers are cut into partitions, front layers go first, and the next
//                   iteration's forward pass of a layer waits for that layer only (Peng et al.,
//                   SOSP 2019)
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/aggregation.h"
#include "sim/connections.h"
#include "sim/model.h"
#include "sim/plan_run.h"
#include "sync/strategy.h"

namespace thalweg {

enum class Overlap : std::uint8_t { kNone, kWaitFree, kByteScheduler };

inline constexpr Bytes kDefaultPartition{4 * 1024 * 1024};

// Traffic of parameter servers by one reading of the DLCP paper (section 5.2.1), instead of a plan:
// "workers assign tensors randomly to different parameter servers", each worker for itself, and
// large tensors are divided evenly among all servers. A server answers each message with as much at
// once. The load is that of parameter servers, but no server gets a sum: for timing only.
struct ScatterOptions {
  int servers = 0;  // workers that serve too, spread evenly over the regions; 0: a plan is run
  Bytes whole;      // larger tensors are divided
  // Iterations that a worker may be ahead of the slowest when it begins one (SSP); none: any
  // number.
  std::optional<int> staleness = {};
};

struct TrainingOptions {
  std::string scheme = "ring";  // as Strategy::make() takes it
  Overlap overlap = Overlap::kWaitFree;
  // The largest message that a layer is cut into, so that the steps of its plan overlap. None:
  // kByteScheduler cuts at kDefaultPartition, the others not at all.
  std::optional<Bytes> partition = {};
  ScatterOptions scatter = {};
  int iterations = 1;
  // If there is one: a worker begins an iteration only as long as it says yes, and the job is not
  // waited for (one that makes contention for others).
  std::function<bool()> goes_on = {};
  Duration start = {};  // after the start of the simulation
  // How much slower each worker computes than the table says; 1 for workers beyond its end.
  std::vector<double> slowdown = {};
};

struct IterationResult {
  Time start;  // of the first worker's forward pass
  Time end;    // when the last worker could start the next iteration
  [[nodiscard]] Duration duration() const { return end - start; }
};

// A worker at work on one layer.
struct ComputeSpan {
  Rank worker;
  int iteration = 0;
  int layer = 0;
  bool backward = false;
  Time start;
  Time end;
};

// The aggregation of these workers of a job, for strategies whose groups are summed in switches.
using GroupAggregation = std::function<Result<Aggregation*>(const std::vector<Rank>& members)>;

// One job on the hosts `workers` of the network (worker i is rank i of its plans).
class TrainingJob {
 public:
  // `topology` is that of the job: its hosts are the workers, in order; plans are made for it.
  // An error if the scheme cannot be had. With an aggregation, tensors go by it and no plan is
  // made. `group_aggregation` is asked once for each group that is summed in switches, here.
  static Result<std::unique_ptr<TrainingJob>> make(const ModelTable& model,
                                                   const TrainingOptions& options,
                                                   const Topology& topology, Network& network,
                                                   Connections& connections,
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
  // Samples a second over all workers, from the second iteration on where there are several.
  [[nodiscard]] double samples_per_second() const;
  // The same for the bits of gradients that a worker has summed.
  [[nodiscard]] double goodput_gbps() const;
  // [worker]: from the job's start to its own end, over the iterations. Requires done().
  [[nodiscard]] std::vector<Duration> worker_paces() const;

 private:
  struct Worker {
    int iteration = 0;
    int layer = 0;  // computing or waiting for
    bool backward = false;
    bool waiting = false;        // for the layer's gradients of the iteration before
    bool held = false;           // before the next iteration: too far ahead
    Time end;                    // of the last iteration it finished
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
  // The exchange of one layer in one iteration of the strategy's period.
  struct Exchanges {
    struct Place {
      int group = -1;  // -1: the worker shares nothing in this iteration
      Rank rank;       // in the group's plan
    };
    std::vector<GroupPlan> groups;
    std::vector<Aggregation*> sums;  // [group]; null: it has a plan
    std::vector<Place> places;       // [worker]
  };
  // The same under way.
  struct LayerRun {
    std::vector<std::unique_ptr<PlanRun>> groups;  // null: summed in switches
    std::vector<std::size_t> missing;              // [group]: members that have not come to it
    int workers_left = 0;
  };

  Status make_exchanges(const Strategy& strategy, const Topology& topology,
                        const GroupAggregation& group_aggregation);
  void sum_in_switches(LayerRun& run, const Exchanges& exchanges, std::size_t group, int iteration,
                       int layer);
  static Result<Exchanges> exchanges_of(std::vector<GroupPlan> groups, int workers,
                                        const TrainingOptions& options);
  LayerRun& run_of(int iteration, int layer);

  // [iteration of the period][layer]; none when tensors are scattered or aggregated
  std::vector<std::vector<Exchanges>> exchanges_;
  PlanRun::Pace pace_ = PlanRun::Pace::kEager;
  std::vector<Rank> servers_;  // of scattered tensors
  std::vector<Worker> workers_;
  // [layer]: the runs by iteration, from the oldest that not all workers are through with. By BSP
  // these are two at most; groups may run ahead of one another until a chain of groups ties them.
  std::vector<std::map<int, LayerRun>> runs_;
  std::vector<int> workers_done_;  // [iteration]
  std::vector<IterationResult> results_;
  std::vector<Time> starts_;
  std::function<void(const ComputeSpan&)> observer_;
};

}  // namespace thalweg
