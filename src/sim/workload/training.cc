#include "sim/workload/training.h"

#include <fmt/core.h>

#include <algorithm>

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
    if (strategy.in_parts()) job->pace_ = Pace::kRendezvous;
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
  job->runs_.resize(layers);
  job->workers_done_.assign(static_cast<std::size_t>(options.iterations), 0);
  job->slowest_.assign(static_cast<std::size_t>(options.iterations), Duration());
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
    network_.call_at(Time::at(options_.start),
                     [this, w] { begin_iteration(Rank(static_cast<std::int32_t>(w))); });
  }
}

Duration TrainingJob::compute_time(Rank worker, Duration table_time) const {
  const double factor =
      worker.index() < options_.slowdown.size() ? options_.slowdown[worker.index()] : 1;
  return Duration::seconds(table_time.s() * factor);
}

void TrainingJob::begin_iteration(Rank rank) {
  Worker& worker = workers_[rank.index()];
  const auto iteration = static_cast<std::size_t>(worker.iteration);
  if (starts_.size() <= iteration) starts_.push_back(network_.now());
  worker.begun.push_back(network_.now());
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
  const Time end = network_.now() + time;
  if (observer_) {
    observer_({.worker = rank,
               .iteration = worker.iteration,
               .layer = worker.layer,
               .backward = worker.backward,
               .start = network_.now(),
               .end = end});
  }
  network_.call_at(end, [this, rank] { on_computed(rank); });
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
      network_.call_at(network_.now(), part_back);
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
  network_.call_at(network_.now(), [this, &run, rank, iteration, layer] {
    --run.workers_left;
    on_layer_back(rank, iteration, layer);
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
                                  --run.workers_left;
                                  on_layer_back(member, iteration, layer);
                                });
  }
}

// The first worker to come makes the run. That is also when older runs that all workers have
// finished are deleted, because then no call into them is under way.
TrainingJob::LayerRun& TrainingJob::run_of(int iteration, int layer) {
  const auto l = static_cast<std::size_t>(layer);
  std::map<int, LayerRun>& runs = runs_[l];
  if (const auto found = runs.find(iteration); found != runs.end()) return found->second;
  while (!runs.empty() && runs.begin()->second.workers_left == 0) runs.erase(runs.begin());
  LayerRun& run = runs[iteration];
  run.workers_left = static_cast<int>(workers_.size());
  Exchanges& exchanges = exchanges_[static_cast<std::size_t>(iteration) % exchanges_.size()][l];
  exchanges.runnable.resize(exchanges.groups.size());
  for (std::size_t g = 0; g < exchanges.groups.size(); ++g) {
    const sync::GroupPlan& group = exchanges.groups[g];
    run.missing.push_back(group.members.size());
    if (group.in_switch) {
      run.groups.emplace_back();
      continue;
    }
    if (!exchanges.runnable[g]) {
      exchanges.runnable[g] = std::make_unique<RunnablePlan>(group.plan);
    }
    const auto rank_done = [this, &run, &group, iteration, layer](Rank r) {
      --run.workers_left;
      on_layer_back(group.members[r.index()], iteration, layer);
    };
    run.groups.push_back(
        PlanRun::make(*exchanges.runnable[g], connections_,
                      {.rank_done = rank_done,
                       .urgency = urgency_of(iteration, layer),
                       .priority = tensor::priority_of_layer(l, model_.layers.size()),
                       .members = group.members,
                       .pace = pace_}));
  }
  return run;
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
  const auto iteration = static_cast<std::size_t>(worker.finished() - 1);
  worker.end = network_.now();
  slowest_[iteration] = std::max(slowest_[iteration], worker.end - worker.begun.front());
  worker.begun.pop_front();
  if (++workers_done_[iteration] == static_cast<int>(workers_.size())) {
    results_.push_back({.start = starts_[iteration],
                        .end = network_.now(),
                        .slowest_worker = slowest_[iteration]});
  }
  release_held();
  if (options_.overlap == Overlap::kByteScheduler) return;  // the worker has gone on already
  begin_next(rank);
}

double TrainingJob::iterations_per_second() const {
  CHECK(done());
  const std::size_t first = results_.size() > 1 ? 1 : 0;
  const Time begin = first == 0 ? results_[0].start : results_[first - 1].end;
  const Duration time = results_.back().end - begin;
  return static_cast<double>(results_.size() - first) / time.s();
}

std::vector<Duration> TrainingJob::worker_paces() const {
  CHECK(done());
  std::vector<Duration> paces;
  for (const Worker& worker : workers_) {
    paces.push_back((worker.end - results_.front().start) / options_.iterations);
  }
  return paces;
}

double TrainingJob::samples_per_second() const {
  return static_cast<double>(model_.batch) * model_.part * static_cast<double>(workers_.size()) *
         iterations_per_second();
}

double TrainingJob::goodput_gbps() const {
  return static_cast<double>(model_.size().count()) * 8e-9 * iterations_per_second();
}

}  // namespace thalweg::sim
