#include "sim/scenario/scenario_run.h"

#include <algorithm>

#include "base/check.h"
#include "sim/observe/recorder.h"
#include "sim/workload/random_pauses.h"

namespace thalweg::sim {
namespace {

// How many times progress is reported in the time that the scenario may take.
constexpr int kProgressSteps = 1000;

// Streams of the scenario's seed; item i uses the stream's number plus i.
constexpr std::uint64_t kBackground = 1'000'000;
constexpr std::uint64_t kPauses = 2'000'000;

void apply(const LossFault& f, Network& network) {
  network.set_loss(topology::ArcId(2 * f.link.value()), f.probability);
  network.set_loss(topology::ArcId(2 * f.link.value() + 1), f.probability);
}
void apply(const BurstFault& f, Network& network) {
  network.set_bursty_loss(topology::ArcId(2 * f.link.value()), f.good_packets, f.bad_packets);
  network.set_bursty_loss(topology::ArcId(2 * f.link.value() + 1), f.good_packets, f.bad_packets);
}
void apply(const LinkFault& f, Network& network) { network.set_link_up(f.link, f.up); }
void apply(const RateFault& f, Network& network) { network.set_rate_factor(f.link, f.factor); }
void apply(const PauseFault& f, Network& network) { network.set_host_paused(f.host, f.paused); }
void apply(const RestartFault& f, Network& network) { network.restart_switch(f.node); }
void apply(const RandomPauseFault& /*f*/, Network& /*network*/) {
  CHECK(false, "random pauses go on: see RandomPauses");
}

std::vector<double> utilisation(const Network& network, const topology::Topology& topology) {
  std::vector<double> result(topology.arc_count(), 0);
  const double seconds = network.now().since_start().s();
  if (seconds == 0) return result;
  for (std::size_t a = 0; a < result.size(); ++a) {
    const topology::Arc arc = topology.arc(topology::ArcId(static_cast<std::int32_t>(a)));
    result[a] =
        static_cast<double>(network.arc_bytes()[a]) / (arc.spec.rate.bytes_per_second() * seconds);
  }
  return result;
}

AggregationCounters sum_of(const AggregationCounters& a, const AggregationCounters& b) {
  return {.sent = a.sent + b.sent,
          .retransmissions = a.retransmissions + b.retransmissions,
          .timeouts = a.timeouts + b.timeouts,
          .marks = a.marks + b.marks,
          .aggregated = a.aggregated + b.aggregated,
          .completed = a.completed + b.completed,
          .collisions = a.collisions + b.collisions,
          .forwarded = a.forwarded + b.forwarded,
          .partial_sums = a.partial_sums + b.partial_sums,
          .expired = a.expired + b.expired,
          .most_slots = std::max(a.most_slots, b.most_slots),
          .at_servers = a.at_servers + b.at_servers};
}

// One run: everything that is put on the network, and its results.
class ScenarioRun {
 public:
  ScenarioRun(const Scenario& scenario, RunRecorder* recorder)
      : scenario_(scenario),
        recorder_(recorder),
        network_(*scenario.topology, scenario.network),
        ends_(network_) {}

  Status set_up();
  ScenarioResult run(const RunProgress& progress);

 private:
  Status add_job(const ScenarioJob& job);
  Result<Aggregation*> add_aggregation(const AggregationSpec& spec);
  void add_flow(const ScenarioFlow& flow);
  void add_background(const ScenarioBackground& background);
  void add_fault(const ScenarioFault& fault);
  // Whether a flow or a job has yet to end. Background traffic does not count.
  [[nodiscard]] bool work_left() const {
    return flows_left_ > 0 || std::ranges::any_of(jobs_, [](const auto& job) {
             return job->waited_for() && !job->done();
           });
  }
  // How much of the work is done, from 0 to 1: that of the job, or of the flows, with the most
  // left.
  [[nodiscard]] double share_done() const;

  const Scenario& scenario_;
  RunRecorder* const recorder_;  // may be null
  Network network_;
  FlowEnds ends_;
  ScenarioResult result_;
  std::vector<std::unique_ptr<Connections>> connections_;
  std::vector<std::unique_ptr<Aggregation>> aggregations_;
  // [job]: numbers of Network::add_aggregation().
  std::vector<std::vector<std::int32_t>> aggregations_of_;
  std::vector<std::unique_ptr<TrainingJob>> jobs_;
  std::vector<std::unique_ptr<BackgroundTraffic>> background_;
  std::vector<std::unique_ptr<RandomPauses>> pauses_;
  std::size_t flows_left_ = 0;
};

Status ScenarioRun::set_up() {
  if (recorder_ != nullptr) recorder_->attach(network_);
  ends_.observe([this](const FlowResult& flow) { result_.flows.push_back(flow); });
  result_.groups.emplace_back("flows");
  for (const ScenarioJob& job : scenario_.jobs) THALWEG_TRY_STATUS(add_job(job));
  flows_left_ = scenario_.flows.size();
  for (const ScenarioFlow& flow : scenario_.flows) add_flow(flow);
  for (const ScenarioBackground& background : scenario_.background) add_background(background);
  for (const ScenarioFault& fault : scenario_.faults) add_fault(fault);
  return ok_status();
}

Status ScenarioRun::add_job(const ScenarioJob& job) {
  connections_.push_back(
      std::make_unique<Connections>(network_, ends_,
                                    ConnectionOptions{.transport = job.transport.get(),
                                                      .most_at_once = scenario_.most_at_once,
                                                      .most_per_rank = scenario_.most_per_worker,
                                                      .in_pieces = scenario_.in_pieces,
                                                      .warm = scenario_.warm,
                                                      .tag = result_.groups.size(),
                                                      .hosts = job.hosts}));
  result_.groups.push_back(job.name);
  aggregations_of_.emplace_back();
  Aggregation* aggregation = nullptr;
  if (job.transport->aggregation() != nullptr) {
    const auto added = add_aggregation({.transport = job.transport.get(),
                                        .workers = job.hosts,
                                        .servers = job.servers,
                                        .slot_limit = job.slot_limit});
    if (!added.ok()) return added.error().within("job " + job.name);
    aggregation = *added;
  }
  const auto of_group = [&](const std::vector<Rank>& members) {
    std::vector<Rank> hosts;
    for (const Rank member : members) hosts.push_back(job.hosts[member.index()]);
    return add_aggregation(
        {.transport = job.group_transport.get(), .workers = hosts, .servers = hosts});
  };
  TrainingOptions training = job.training;
  if (job.background) training.goes_on = [this] { return work_left(); };
  auto made = TrainingJob::make(job.model, training, *job.topology, network_, *connections_.back(),
                                aggregation, of_group);
  if (!made.ok()) return made.error().within("job " + job.name);
  jobs_.push_back(std::move(*made));
  if (recorder_ != nullptr) recorder_->watch(jobs_.size() - 1, *jobs_.back());
  jobs_.back()->start();
  return ok_status();
}

// Adds one more aggregation to the job that was added last.
Result<Aggregation*> ScenarioRun::add_aggregation(const AggregationSpec& spec) {
  THALWEG_TRY(const std::int32_t number, network_.add_aggregation(spec));
  aggregations_.push_back(
      std::make_unique<Aggregation>(network_, ends_, spec, number, result_.groups.size() - 1));
  aggregations_of_.back().push_back(number);
  return aggregations_.back().get();
}

void ScenarioRun::add_flow(const ScenarioFlow& flow) {
  network_.call_at(Time::at(flow.at), [this, flow] {
    const FlowId id = network_.start_flow({.source = flow.source,
                                           .target = flow.target,
                                           .bytes = static_cast<std::uint64_t>(flow.size.count()),
                                           .transport = scenario_.transport.get(),
                                           .warm = false,
                                           .tag = 0,
                                           .path = flow.path});
    ends_.expect(id, [this] { --flows_left_; });
  });
}

void ScenarioRun::add_background(const ScenarioBackground& background) {
  BackgroundOptions options = background.options;
  options.tag = result_.groups.size();
  result_.groups.push_back(background.name);
  const std::uint64_t seed = Prng(scenario_.network.seed).fork(kBackground + options.tag).next();
  background_.push_back(std::make_unique<BackgroundTraffic>(
      std::move(options), network_, *background.transport, seed, [this] { return work_left(); }));
  background_.back()->start();
}

void ScenarioRun::add_fault(const ScenarioFault& fault) {
  if (const auto* random = std::get_if<RandomPauseFault>(&fault.what)) {
    const std::uint64_t seed = Prng(scenario_.network.seed).fork(kPauses + pauses_.size()).next();
    pauses_.push_back(std::make_unique<RandomPauses>(random->hosts, random->every, network_, seed,
                                                     [this] { return work_left(); }));
    network_.call_at(Time::at(fault.at), [&pauses = *pauses_.back()] { pauses.change(); });
    return;
  }
  network_.call_at(Time::at(fault.at), [this, fault] {
    std::visit([&](const auto& what) { apply(what, network_); }, fault.what);
  });
}

double ScenarioRun::share_done() const {
  const auto share = [](std::size_t done, std::size_t all) {
    return all == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(all);
  };
  double least = share(scenario_.flows.size() - flows_left_, scenario_.flows.size());
  for (std::size_t j = 0; j < jobs_.size(); ++j) {
    if (!jobs_[j]->waited_for()) continue;
    const auto iterations = static_cast<std::size_t>(scenario_.jobs[j].training.iterations);
    least = std::min(least, share(jobs_[j]->results().size(), iterations));
  }
  return least;
}

ScenarioResult ScenarioRun::run(const RunProgress& progress) {
  for (int step = 1; step <= kProgressSteps && !result_.finished; ++step) {
    const Time until = Time::at(scenario_.until * step / kProgressSteps);
    result_.finished = recorder_ != nullptr ? recorder_->run(until) : network_.run(until);
    if (progress) progress(network_.now(), share_done());
  }
  // A job that failed leaves an idle network, but its work is not finished.
  result_.finished = result_.finished && !work_left();
  if (recorder_ != nullptr) recorder_->finish();
  result_.end = network_.now();
  for (std::size_t j = 0; j < jobs_.size(); ++j) {
    result_.jobs.push_back(
        {.name = scenario_.jobs[j].name,
         .iterations = jobs_[j]->results(),
         .done = jobs_[j]->done(),
         .samples_per_second = jobs_[j]->done() ? jobs_[j]->samples_per_second() : 0,
         .goodput_gbps = jobs_[j]->done() ? jobs_[j]->goodput_gbps() : 0,
         .workers = jobs_[j]->worker_count(),
         .worker_paces = jobs_[j]->done() ? jobs_[j]->worker_paces() : std::vector<Duration>()});
    for (const std::int32_t number : aggregations_of_[j]) {
      const AggregationCounters counters = network_.aggregation_counters(number);
      auto& sum = result_.jobs.back().aggregation;
      sum = sum ? sum_of(*sum, counters) : counters;
    }
  }
  result_.flows_unfinished = network_.active_flows();
  result_.failures = network_.aggregation_failures();
  result_.counters = network_.counters();
  result_.arc_utilisation = utilisation(network_, *scenario_.topology);
  result_.violations = network_.violations();
  return std::move(result_);
}

}  // namespace

Result<ScenarioResult> run_scenario(const Scenario& scenario, const RunProgress& progress,
                                    RunRecorder* recorder) {
  ScenarioRun run(scenario, recorder);
  THALWEG_TRY_STATUS(run.set_up());
  return run.run(progress);
}

Histogram completion_times_ms(const std::vector<FlowResult>& flows) {
  Histogram times;
  for (const FlowResult& flow : flows) times.add(flow.completion_time().ms());
  return times;
}

Histogram completion_times_ms(const std::vector<FlowResult>& flows, std::size_t group) {
  Histogram times;
  for (const FlowResult& flow : flows) {
    if (flow.spec.tag == group) times.add(flow.completion_time().ms());
  }
  return times;
}

}  // namespace thalweg::sim
