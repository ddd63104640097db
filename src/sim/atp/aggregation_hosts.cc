// Jobs, their ends and tensors, and the checks on them; the loop is in aggregation_drive.cc.
#include "sim/atp/aggregation_hosts.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "sim/atp/packet_header.h"

namespace thalweg::sim {
namespace {

constexpr std::uint64_t kAggregationStream = std::uint64_t{5} << 32;
constexpr std::uint64_t kElementBytes = 4;
// As a rule the server gives up first (AggregationParameters::deadline); a worker that hears
// nothing from it waits this many times as long.
constexpr int kWorkerPatience = 6;
constexpr std::uint32_t kMostTensors = 1U << 20;

// By server: the place of the worker on its host, if that is in a group of several.
std::vector<std::optional<proto::AtpSeat>> seats_of(const AggregationSpec& spec,
                                                    const topology::AggregationGroups& groups) {
  if (!spec.transport->aggregation()->own_sums) return {};
  std::vector<std::optional<proto::AtpSeat>> seats;
  for (const Rank server : spec.servers) {
    std::optional<proto::AtpSeat>& seat = seats.emplace_back();
    const auto worker = std::ranges::find(spec.workers, server) - spec.workers.begin();
    if (worker == std::ssize(spec.workers)) continue;
    const auto& place = groups.workers[static_cast<std::size_t>(worker)];
    if (groups.members[place.group] < 2) continue;
    seat = proto::AtpSeat{static_cast<std::uint8_t>(place.group),
                          static_cast<std::uint8_t>(place.index)};
  }
  return seats;
}

}  // namespace

AggregationHosts::AggregationHosts(const NetworkOptions& options, EventQueue& events,
                                   Fabric& fabric, AggregationSwitches& switches,
                                   NetworkCounters& counters, Done done)
    : events_(events),
      fabric_(fabric),
      pool_(fabric.pool()),
      switches_(switches),
      counters_(counters),
      done_(std::move(done)),
      prng_(Prng(options.seed).fork(kAggregationStream)),
      framing_bytes_(options.framing_bytes),
      host_queue_(static_cast<std::uint64_t>(options.host_queue.count())),
      lines_(EventKind::kAggregationDrained, events, fabric) {}

std::uint64_t AggregationHosts::limit_of(const End& end) const {
  if (host_queue_ > 0) return host_queue_;
  return static_cast<std::uint64_t>(jobs_[end.job].parameters->host_queue.count());
}

std::uint32_t AggregationHosts::make_end(std::size_t job, std::size_t index, Rank host) {
  const auto number = static_cast<std::uint32_t>(ends_.size());
  ends_.push_back(std::make_unique<End>());
  End& end = *ends_.back();
  end.job = job;
  end.index = index;
  end.host = host;
  end.path = static_cast<std::uint32_t>(prng_.next());
  return number;
}

void AggregationHosts::make_worker(Job& job, std::size_t number, std::size_t index) {
  const std::uint32_t made = make_end(number, index, job.spec.workers[index]);
  job.workers.push_back(made);
  End& end = *ends_[made];
  const AggregationParameters& parameters = *job.parameters;
  if (parameters.switchml) {
    end.switchml = std::make_unique<SwitchmlWorker>(
        SwitchmlWorkerOptions{.job = static_cast<std::uint32_t>(number),
                              .index = static_cast<std::uint8_t>(index),
                              .workers = static_cast<std::uint8_t>(job.spec.workers.size()),
                              .pool = parameters.window,
                              .elements = parameters.elements,
                              .most_tensors = kMostTensors,
                              .timeout = parameters.timeout});
    return;
  }
  const topology::AggregationGroups::Worker& place = job.groups.workers[index];
  proto::AtpWorkerOptions options;
  options.job = static_cast<std::uint32_t>(number);
  options.group = static_cast<std::uint8_t>(place.group);
  options.index = static_cast<std::uint8_t>(place.index);
  options.fan_in = static_cast<std::uint8_t>(job.groups.members[place.group]);
  options.group_count = static_cast<std::uint8_t>(job.groups.members.size());
  options.level = place.first_level ? wire::kAtpFirstLevel : wire::kAtpSecondLevel;
  options.servers = static_cast<std::uint32_t>(job.spec.servers.size());
  options.seats = job.seats;
  options.elements = parameters.elements;
  options.window = parameters.window;
  options.frame_overhead =
      std::max(parameters.header - Bytes(wire::kAtpHeaderSize) + Bytes(framing_bytes_), Bytes());
  options.most_tensors = kMostTensors;
  options.congestion = {.enabled = parameters.congestion_control,
                        .initial_packets = parameters.initial_window,
                        .step = parameters.step,
                        .threshold = parameters.threshold};
  options.recovery = {.out_of_sequence = parameters.out_of_sequence,
                      .initial = parameters.timeout,
                      .least = parameters.timeout_min,
                      .most = parameters.timeout_max};
  end.worker = std::make_unique<proto::AtpWorker>(options);
}

void AggregationHosts::make_server(Job& job, std::size_t number, std::size_t index) {
  const std::uint32_t made = make_end(number, index, job.spec.servers[index]);
  job.servers.push_back(made);
  End& end = *ends_[made];
  proto::AtpServerOptions options;
  options.job = static_cast<std::uint32_t>(number);
  options.groups.clear();
  for (const std::size_t members : job.groups.members) {
    options.groups.push_back(static_cast<std::uint8_t>(members));
  }
  options.servers = static_cast<std::uint32_t>(job.spec.servers.size());
  options.index = static_cast<std::uint32_t>(index);
  if (!job.seats.empty()) options.seat = job.seats[index];
  options.elements = job.parameters->elements;
  options.window = job.parameters->window;
  options.deadline = job.parameters->deadline;
  end.server = std::make_unique<proto::AtpServer>(options);
  end.values.resize(end.server->slots());
}

Result<std::int32_t> AggregationHosts::add(const AggregationSpec& spec) {
  const std::size_t number = jobs_.size();
  Job job;
  job.spec = spec;
  job.parameters = spec.transport->aggregation();
  CHECK(job.parameters != nullptr);
  const auto aggregates = [this](topology::NodeId node) { return switches_.aggregates(node); };
  THALWEG_TRY(job.groups, switches_.groups_of(spec));
  if (spec.workers.size() == 1 && (spec.servers.empty() || spec.servers == spec.workers)) {
    return Error("a job that is summed in switches needs two hosts");
  }
  const auto id = static_cast<std::uint32_t>(number);
  if (job.parameters->switchml) {
    const auto& sites = job.groups.sites;
    if (job.groups.members.size() != 1 || sites.size() != 1 || !aggregates(sites[0].node)) {
      return Error(
          "SwitchML: all workers, at most 32, must hang on one switch, and it must aggregate");
    }
    THALWEG_TRY_STATUS(switches_.add_switchml_job(id, spec, sites[0].node));
  } else {
    if (spec.servers.empty()) return Error("ATP: a job needs at least one server");
    job.seats = seats_of(spec, job.groups);
    THALWEG_TRY_STATUS(switches_.add_job(id, spec, job.groups, job.seats));
  }
  for (std::size_t w = 0; w < spec.workers.size(); ++w) make_worker(job, number, w);
  for (std::size_t s = 0; s < spec.servers.size(); ++s) make_server(job, number, s);
  jobs_.push_back(std::move(job));
  return static_cast<std::int32_t>(number);
}

void AggregationHosts::start_flow(FlowId id, const FlowSpec& spec) {
  const Job& job = jobs_[static_cast<std::size_t>(spec.aggregation)];
  const std::uint32_t index = job.workers[static_cast<std::size_t>(spec.worker)];
  End& end = *ends_[index];
  CHECK(end.host == spec.target, "a tensor of another worker");
  const std::uint64_t elements = (spec.bytes + kElementBytes - 1) / kElementBytes;
  const std::uint64_t packets =
      (elements + job.parameters->elements - 1) / job.parameters->elements;
  flow_index_.emplace(id, index);
  end.flows.push_back({.id = id,
                       .spec = spec,
                       .start = events_.now(),
                       .first = end.next_sequence,
                       .end = end.next_sequence + packets});
  end.next_sequence += packets;
  if (end.failed) return;
  const proto::AtpTensorSpec tensor{.elements = static_cast<std::int64_t>(elements),
                                    .deadline = job.parameters->deadline * kWorkerPatience,
                                    .cookie = static_cast<std::uint64_t>(id.value())};
  const auto started = end.switchml ? end.switchml->start(tensor, events_.now())
                                    : end.worker->start(tensor, events_.now());
  CHECK(started.ok(), "{}", started.error().message());
  drive_worker(index);
}

std::optional<FlowProgress> AggregationHosts::progress_of(FlowId id) const {
  const auto found = flow_index_.find(id);
  if (found == flow_index_.end()) return std::nullopt;
  const End& end = *ends_[found->second];
  for (const Flow& flow : end.flows) {
    if (flow.id != id) continue;
    const std::uint64_t bytes = flow.placed * jobs_[end.job].parameters->elements * kElementBytes;
    return FlowProgress{flow.spec, flow.start, std::min(bytes, flow.spec.bytes)};
  }
  return std::nullopt;
}

std::uint32_t AggregationHosts::sum_of(std::size_t job, std::uint64_t sequence) const {
  std::uint32_t sum = 0;
  for (std::size_t w = 0; w < jobs_[job].workers.size(); ++w) {
    sum += contribution_of(job, w, sequence);
  }
  return sum;
}

// Called when a sum has been put in its place in the tensor.
void AggregationHosts::placed(End& end, std::uint64_t sequence, std::uint32_t value) {
  if (value != sum_of(end.job, sequence) && wrong_sums_++ == 0) {
    first_wrong_ = fmt::format("job {}, worker {}, sequence {}", end.job, end.index, sequence);
  }
  const auto flow = std::ranges::upper_bound(end.flows, sequence, {}, &Flow::end);
  CHECK(flow != end.flows.end() && sequence >= flow->first, "a sum of no tensor");
  ++flow->placed;
}

// Tensors may complete in any order, but are reported in the order they started: a later one waits
// for those before it.
void AggregationHosts::end_flows(End& end) {
  while (!end.flows.empty()) {
    const Flow& front = end.flows.front();
    if (front.placed < front.end - front.first) return;
    const Flow flow = front;
    end.flows.pop_front();
    flow_index_.erase(flow.id);
    const AggregationParameters& parameters = *jobs_[end.job].parameters;
    const auto full = static_cast<std::uint32_t>(parameters.elements * kElementBytes);
    const auto last =
        static_cast<std::uint32_t>(flow.spec.bytes - (flow.end - flow.first - 1) * full);
    FlowResult result;
    result.id = flow.id;
    result.spec = flow.spec;
    result.start = flow.start;
    result.end = events_.now();
    result.counters.segments = flow.end - flow.first;
    const FlowShape shape{flow.spec.bytes, flow.spec.bytes > full ? full : last, last, true,
                          static_cast<std::uint32_t>(parameters.header.count()) + framing_bytes_};
    done_(result, shape);
  }
}

void AggregationHosts::fail(End& end, const std::string& why) {
  if (end.failed) return;
  end.failed = true;
  failures_.push_back(why);
}

AggregationCounters AggregationHosts::counters(std::int32_t number) const {
  AggregationCounters sum;
  const Job& job = jobs_[static_cast<std::size_t>(number)];
  for (const std::uint32_t index : job.workers) {
    const End& end = *ends_[index];
    sum.sent += end.sent;
    if (end.switchml) {
      sum.retransmissions += end.switchml->retransmitted();
      sum.timeouts += end.switchml->retransmitted();
      continue;
    }
    sum.retransmissions += end.worker->counters().retransmitted;
    sum.timeouts += end.worker->counters().timeouts;
    sum.marks += end.worker->counters().marks;
  }
  for (const std::uint32_t index : job.servers) sum.at_servers += ends_[index]->gradients;
  switches_.count(static_cast<std::uint32_t>(number), sum);
  return sum;
}

void AggregationHosts::check(std::vector<std::string>& violations) const {
  if (wrong_sums_ == 0) return;
  violations.push_back(fmt::format("{} sums are wrong; the first: {}", wrong_sums_, first_wrong_));
}

}  // namespace thalweg::sim
