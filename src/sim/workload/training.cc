#include "sim/workload/training.h"

#include <fmt/core.h>

#include <algorithm>
#include <mutex>

#include "base/check.h"
#include "base/prng.h"
#include "plan/pipeline.h"
#include "plan/verify.h"
#include "tensor/tags.h"

namespace thalweg::sim {
namespace {

// Into how many parts a chunk is cut so that each has at most `partition` bytes.
int parts_of(const plan::Plan& plan, Bytes partition) {
  std::int64_t largest = 0;
  for (const plan::Chunk& chunk : plan.chunks) largest = std::max(largest, chunk.length);
  const std::int64_t bytes = largest * plan.element_bytes;
  return static_cast<int>(
      std::max<std::int64_t>(1, (bytes + partition.count() - 1) / partition.count()));
}

}  // namespace

Result<std::unique_ptr<TrainingJob>> TrainingJob::make(const ModelTable& model,
                                                       const TrainingOptions& options,
                                                       const topology::Topology& topology,
                                                       Network& network, Connections& connections,
                                                       Aggregation* aggregation,
                                                       const GroupAggregation& group_aggregation) {
  std::unique_ptr<TrainingJob> job(
      new TrainingJob(model, options, network, connections, aggregation));
  const std::size_t layers = model.layers.size();
  const bool scattered = options.scatter.servers > 0;
  const bool planned = !scattered && aggregation == nullptr;
  if (planned) {
    THALWEG_TRY(const sync::Strategy strategy, sync::Strategy::make(options.scheme, topology));
    // What a worker that is ahead would send must not slow down exchanges that others still work
    // on.
    if (strategy.in_parts()) job->pace_ = PlanRun::Pace::kRendezvous;
    THALWEG_TRY_STATUS(job->make_exchanges(strategy, topology, group_aggregation));
  }
  if (scattered) {
    job->servers_ = plan::spread_over(plan::ranks_in_region_order(topology),
                                      static_cast<std::size_t>(options.scatter.servers));
  }
  const std::size_t workers = planned ? job->exchanges_.front().front().places.size()
                                      : static_cast<std::size_t>(topology.host_count());
  job->workers_.resize(workers);
  for (Worker& worker : job->workers_) worker.layers_at.assign(layers, 0);
  job->runs_ = std::vector<LayerRuns>(layers);
  return job;
}

Status TrainingJob::make_exchanges(const sync::Strategy& strategy,
                                   const topology::Topology& topology,
                                   const GroupAggregation& group_aggregation) {
  std::map<std::vector<Rank>, Aggregation*> aggregations;
  exchanges_.resize(static_cast<std::size_t>(strategy.period()));
  for (int t = 0; t < strategy.period(); ++t) {
    for (std::size_t l = 0; l < model_.layers.size(); ++l) {
      const ModelLayer& layer = model_.layers[l];
      THALWEG_TRY(std::vector<sync::GroupPlan> plans,
                  strategy.plans(t, {.topology = topology,
                                     .elements = layer.parameters,
                                     .element_bytes = static_cast<int>(size_of(model_.dtype)),
                                     .tensor = l}));
      // If there are groups, all hosts are workers; in one plan for all, some hosts may only help.
      const int workers =
          strategy.schedule() ? topology.host_count() : plans.front().contributors();
      Result<Exchanges> made = exchanges_of(std::move(plans), workers, options_);
      if (!made.ok()) return made.error().within(fmt::format("layer {}", layer.name));
      for (const sync::GroupPlan& group : made->groups) {
        Aggregation*& sums = made->sums.emplace_back(nullptr);
        if (!group.in_switch) continue;
        CHECK(group_aggregation, "a strategy that sums in switches needs aggregations");
        Aggregation*& known = aggregations[group.members];
        if (known == nullptr) {
          THALWEG_TRY(known, group_aggregation(group.members));
        }
        sums = known;
      }
      exchanges_[static_cast<std::size_t>(t)].push_back(std::move(*made));
    }
  }
  return ok_status();
}

// Cuts the plans as the options say, verifies them, and finds every worker's place.
Result<TrainingJob::Exchanges> TrainingJob::exchanges_of(std::vector<sync::GroupPlan> groups,
                                                         int workers,
                                                         const TrainingOptions& options) {
  Exchanges result;
  result.places.resize(static_cast<std::size_t>(workers));
  for (sync::GroupPlan& group : groups) {
    if (group.in_switch) continue;
    if (options.partition || options.overlap == Overlap::kByteScheduler) {
      const int parts = parts_of(group.plan, options.partition.value_or(kDefaultPartition));
      group.plan = plan::pipelined(group.plan, parts);
    }
    const auto proof = plan::verify(group.plan);
    if (!proof.ok()) return proof.error();
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (Rank rank(0); rank.value() < groups[g].contributors(); ++rank) {
      result.places[groups[g].members[rank.index()].index()] = {.group = static_cast<int>(g),
                                                                .rank = rank};
    }
  }
  result.groups = std::move(groups);
  return result;
}

void TrainingJob::start() {
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    const Rank rank(static_cast<std::int32_t>(w));
    network_.call_on(host_of(rank), Time::at(options_.start),
                     [this, rank] { begin_iteration(rank); });
  }
}

Duration TrainingJob::compute_time(Rank worker, Duration table_time) const {
  const double factor =
      worker.index() < options_.slowdown.size() ? options_.slowdown[worker.index()] : 1;
  return Duration::seconds(table_time.s() * factor);
}

void TrainingJob::begin_iteration(Rank rank) {
  Worker& worker = workers_[rank.index()];
  worker.starts.push_back(now(rank));
  worker.layer = 0;
  worker.backward = false;
  compute(rank);
}

void TrainingJob::begin_next(Rank rank) {
  Worker& worker = workers_[rank.index()];
  const bool go_on = !options_.goes_on || options_.goes_on();
  if (worker.iteration + 1 == options_.iterations || !go_on) return;
  worker.held = too_far_ahead(worker);
  if (worker.held) return;
  ++worker.iteration;
  begin_iteration(rank);
}

// SSP: compares the iteration that the worker would begin with what the slowest has finished.
bool TrainingJob::too_far_ahead(const Worker& worker) const {
  if (!options_.scatter.staleness) return false;
  const auto slowest = std::ranges::min_element(workers_, {}, &Worker::finished);
  return worker.iteration + 1 > slowest->finished() + *options_.scatter.staleness;
}

void TrainingJob::release_held() {
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    if (workers_[w].held) begin_next(Rank(static_cast<std::int32_t>(w)));
  }
}

// The forward pass of a layer needs that layer's gradients of the previous iteration.
void TrainingJob::compute(Rank rank) {
  Worker& worker = workers_[rank.index()];
  const auto layer = static_cast<std::size_t>(worker.layer);
  if (!worker.backward && worker.layers_at[layer] < worker.iteration) {
    worker.waiting = true;
    return;
  }
  const ModelLayer& table = model_.layers[layer];
  const Duration time = compute_time(rank, worker.backward ? table.backward : table.forward);
  const Time end = now(rank) + time;
  if (observer_) {
    observer_({.worker = rank,
               .iteration = worker.iteration,
               .layer = worker.layer,
               .backward = worker.backward,
               .start = now(rank),
               .end = end});
  }
  network_.call_on(host_of(rank), end, [this, rank] { on_computed(rank); });
}

void TrainingJob::on_computed(Rank rank) {
  Worker& worker = workers_[rank.index()];
  if (!worker.backward) {
    if (++worker.layer == layer_count()) {
      worker.backward = true;
      --worker.layer;
    }
    compute(rank);
    return;
  }
  const int layer = worker.layer--;
  on_backward_done(rank, layer);
}

void TrainingJob::on_backward_done(Rank rank, int layer) {
  Worker& worker = workers_[rank.index()];
  const int iteration = worker.iteration;
  if (options_.overlap != Overlap::kNone) send_layer(rank, iteration, layer);
  if (layer > 0) {
    compute(rank);
    return;
  }
  if (options_.overlap == Overlap::kNone) {
    for (int l = layer_count() - 1; l >= 0; --l) send_layer(rank, iteration, l);
  }
  if (options_.overlap == Overlap::kByteScheduler) begin_next(rank);
}

// Front layers go first. But no worker can use a gradient before it has all of the iteration
// before, so what others still wait for goes ahead of everything newer.
std::int64_t TrainingJob::urgency_of(int iteration, int layer) const {
  if (options_.overlap != Overlap::kByteScheduler) return 0;
  return static_cast<std::int64_t>(iteration) * layer_count() + layer;
}

void TrainingJob::scatter_layer(Rank rank, int iteration, int layer) {
  const Bytes size = model_.size_of_layer(static_cast<std::size_t>(layer));
  std::vector<Rank> targets = servers_;
  if (size <= options_.scatter.whole) {
    const auto place = static_cast<std::uint64_t>(iteration) * model_.layers.size() +
                       static_cast<std::uint64_t>(layer);
    Prng draw = Prng(place).fork(rank.index());
    targets = {servers_[draw.below(servers_.size())]};
  }
  const auto parts = static_cast<std::int64_t>(targets.size());
  const auto left = std::make_shared<std::int64_t>(parts);
  const auto part_back = [this, left, rank, iteration, layer] {
    if (--*left == 0) on_layer_back(rank, iteration, layer);
  };
  const std::int64_t urgency = urgency_of(iteration, layer);
  const std::uint8_t queue =
      tensor::priority_of_layer(static_cast<std::size_t>(layer), model_.layers.size());
  for (std::int64_t i = 0; i < parts; ++i) {
    const Rank server = targets[static_cast<std::size_t>(i)];
    const Bytes part(plan::share_of(size.count(), parts, i).length);
    if (server == rank || part == Bytes(0)) {
      network_.call_on(host_of(rank), now(rank), part_back);
      continue;
    }
    const auto answer = [this, server, rank, part, urgency, queue, part_back] {
      connections_.send(server, rank, part, urgency, part_back, {.priority = queue, .pull = true});
    };
    connections_.send(rank, server, part, urgency, answer, {.priority = queue, .pull = false});
  }
}

void TrainingJob::send_layer(Rank rank, int iteration, int layer) {
  if (!servers_.empty()) return scatter_layer(rank, iteration, layer);
  if (aggregation_ != nullptr) {
    return aggregation_->send(
        rank, model_.size_of_layer(static_cast<std::size_t>(layer)),
        [this, rank, iteration, layer] { on_layer_back(rank, iteration, layer); });
  }
  const auto& exchanges = exchanges_[static_cast<std::size_t>(iteration) % exchanges_.size()]
                                    [static_cast<std::size_t>(layer)];
  const Exchanges::Place place = exchanges.places[rank.index()];
  LayerRun& run = run_of(iteration, layer);
  if (place.group >= 0) {
    const auto group = static_cast<std::size_t>(place.group);
    if (exchanges.sums[group] != nullptr) {
      return sum_in_switches(run, exchanges, group, iteration, layer);
    }
    run.groups[group]->start(place.rank);
    return;
  }
  network_.call_on(host_of(rank), now(rank), [this, &run, rank, iteration, layer] {
    worker_done(run, rank, iteration, layer);
  });
}

// A sum needs all of its members, so the last one to come starts all: what the others could have
// sent before is not modelled.
void TrainingJob::sum_in_switches(LayerRun& run, const Exchanges& exchanges, std::size_t group,
                                  int iteration, int layer) {
  if (--run.missing[group] > 0) return;
  const std::vector<Rank>& members = exchanges.groups[group].members;
  const Bytes size = model_.size_of_layer(static_cast<std::size_t>(layer));
  for (std::size_t m = 0; m < members.size(); ++m) {
    exchanges.sums[group]->send(Rank(static_cast<std::int32_t>(m)), size,
                                [this, &run, member = members[m], iteration, layer] {
                                  worker_done(run, member, iteration, layer);
                                });
  }
}

// The first worker to come makes the run. That is also when older runs that all workers have
// finished are deleted, because then no call into them is under way. Where there are several
// shards, one might be under way in another until the shards have waited for one another.
TrainingJob::LayerRun& TrainingJob::run_of(int iteration, int layer) {
  LayerRuns& runs = runs_[static_cast<std::size_t>(layer)];
  const std::scoped_lock guard(runs.lock);
  auto& all = runs.by_iteration;
  if (const auto found = all.find(iteration); found != all.end()) return found->second;
  const auto over = [&](const LayerRun& run) {
    return run.workers_left.load() == 0 &&
           (network_.shard_count() == 1 || run.last_window.load() != network_.window());
  };
  while (!all.empty() && over(all.begin()->second)) all.erase(all.begin());
  LayerRun& run = all[iteration];
  run.workers_left = static_cast<int>(workers_.size());
  make_groups(run, iteration, layer);
  return run;
}

void TrainingJob::make_groups(LayerRun& run, int iteration, int layer) {
  const auto l = static_cast<std::size_t>(layer);
  for (const sync::GroupPlan& group :
       exchanges_[static_cast<std::size_t>(iteration) % exchanges_.size()][l].groups) {
    run.missing.push_back(group.members.size());
    if (group.in_switch) {
      run.groups.emplace_back();
      continue;
    }
    run.groups.push_back(std::make_unique<PlanRun>(
        group.plan, connections_, urgency_of(iteration, layer),
        tensor::priority_of_layer(l, model_.layers.size()),
        [this, &run, &group, iteration, layer](Rank r) {
          worker_done(run, group.members[r.index()], iteration, layer);
        },
        group.members, pace_));
  }
}

void TrainingJob::worker_done(LayerRun& run, Rank worker, int iteration, int layer) {
  run.last_window = network_.window();
  --run.workers_left;
  on_layer_back(worker, iteration, layer);
}

void TrainingJob::on_layer_back(Rank rank, int iteration, int layer) {
  Worker& worker = workers_[rank.index()];
  worker.layers_at[static_cast<std::size_t>(layer)] = iteration + 1;
  const bool all_back =
      std::ranges::all_of(worker.layers_at, [&](int at) { return at == iteration + 1; });
  if (all_back) finish_iteration(rank);
  if (worker.waiting && worker.layer == layer) {
    worker.waiting = false;
    compute(rank);
  }
}

void TrainingJob::finish_iteration(Rank rank) {
  Worker& worker = workers_[rank.index()];
  worker.ends.push_back(now(rank));
  if (options_.scatter.staleness) release_held();
  if (options_.overlap == Overlap::kByteScheduler) return;  // the worker has gone on already
  begin_next(rank);
}

}  // namespace thalweg::sim
