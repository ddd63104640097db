// Flows, their ends and the checks on them; the loop is in dlcp_drive.cc.
#include "sim/dlcp/dlcp_hosts.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "base/prng.h"

namespace thalweg::sim {
namespace {

constexpr std::uint64_t kDlcpStream = std::uint64_t{4} << 32;
// Longer than any simulation: like TCP flows, DLCP flows do not fail.
constexpr Duration kDeadline = Duration::milliseconds(24LL * 3600 * 1000);

proto::LossBound bound_of(const FlowSpec& spec) {
  const DlcpParameters& parameters = *spec.transport->dlcp();
  return *proto::LossBound::of(spec.pull ? parameters.pull_bound.value_or(parameters.bound / 2)
                                         : parameters.bound);
}

}  // namespace

std::size_t DlcpHosts::PairHash::operator()(const PairKey& key) const {
  return mix_bits(reinterpret_cast<std::uintptr_t>(key.parameters) ^ (key.host.index() << 40) ^
                  (key.peer.index() << 16));
}

DlcpHosts::DlcpHosts(const NetworkOptions& options, EventQueue& events, Fabric& fabric,
                     NetworkCounters& counters, Done done)
    : events_(events),
      fabric_(fabric),
      pool_(fabric.pool()),
      counters_(counters),
      done_(std::move(done)),
      prng_(Prng(options.seed).fork(kDlcpStream)),
      framing_bytes_(options.framing_bytes),
      host_queue_(static_cast<std::uint64_t>(options.host_queue.count())),
      socket_limit_(static_cast<std::uint64_t>(options.socket_queue.count())),
      label_paths_(options.balancing == LoadBalancing::kLabel),
      seed_(options.seed),
      lines_(EventKind::kDlcpDrained, events, fabric) {}

std::uint64_t DlcpHosts::limit_of(const Side& side) const {
  return host_queue_ > 0 ? host_queue_
                         : static_cast<std::uint64_t>(side.parameters.host_queue.count());
}

std::uint32_t DlcpHosts::side_of(const DlcpParameters& parameters, Rank host, Rank peer) {
  const auto found = side_index_.find({&parameters, host, peer});
  if (found != side_index_.end()) return found->second;
  const std::uint32_t here = make_side(parameters, host, peer);
  const std::uint32_t there = make_side(parameters, peer, host);
  sides_[here]->other = there;
  sides_[there]->other = here;
  return here;
}

proto::GrantScheduler* DlcpHosts::grants_of(const DlcpParameters& parameters, Rank host) {
  if (!parameters.grants) return nullptr;
  auto& grants = schedulers_[{&parameters, host, host}];
  if (grants == nullptr) {
    const std::uint64_t seed = mix_bits(seed_ + kGoldenStep * (host.index() + 1));
    grants = std::make_unique<proto::GrantScheduler>(
        parameters.grant_options(fabric_.host_rate(host), seed));
  }
  return grants.get();
}

std::uint32_t DlcpHosts::make_side(const DlcpParameters& parameters, Rank host, Rank peer) {
  proto::DlcpOptions options =
      parameters.options(fabric_.name_of(peer), fabric_.host_rate(host), framing_bytes_);
  const auto index = static_cast<std::uint32_t>(sides_.size());
  options.order_seed = mix_bits(seed_ + index);
  if (parameters.order != DlcpParameters::Order::kOldest) {
    ahead_ = static_cast<std::uint64_t>(parameters.ahead.count());
  }
  sides_.push_back(
      std::make_unique<Side>(options, grants_of(parameters, host), index, parameters, host, peer));
  const std::uint64_t paths = prng_.next();
  sides_.back()->first_label = static_cast<std::uint32_t>(paths);
  sides_.back()->control_path = static_cast<std::uint32_t>(paths >> 32);
  side_index_.emplace(PairKey{&parameters, host, peer}, index);
  return index;
}

std::uint32_t DlcpHosts::make_flow(FlowId id, const FlowSpec& spec) {
  auto index = static_cast<std::uint32_t>(flows_.size());
  if (free_flows_.empty()) {
    flows_.emplace_back();
  } else {
    index = free_flows_.back();
    free_flows_.pop_back();
  }
  Flow& flow = flows_[index];
  flow = Flow();
  flow.id = id;
  flow.spec = spec;
  flow.start = events_.now();
  flow.bound = bound_of(spec);
  flow.path = spec.path >= 0 ? static_cast<std::uint32_t>(spec.path)
                             : static_cast<std::uint32_t>(prng_.next());
  flow_index_.emplace(id, index);
  return index;
}

proto::TransferSpec DlcpHosts::transfer_of(std::uint32_t index) const {
  const Flow& flow = flows_[index];
  proto::TransferSpec transfer;
  transfer.key = static_cast<std::uint64_t>(flow.id.value());
  transfer.elements = dlcp_elements(flow.spec.bytes);
  transfer.type = DType::kFloat32;
  transfer.payload = flow.spec.transport->dlcp()->segment;
  transfer.bound = flow.bound;
  transfer.deadline = kDeadline;
  transfer.urgency = flow.spec.priority;
  transfer.gradual = flow.spec.watcher != nullptr;
  transfer.cookie = index;
  return transfer;
}

// Marks a share of the segments, chosen by a hash, as important.
proto::TagSource DlcpHosts::tags_of(const FlowSpec& spec, std::uint64_t seed) const {
  const double important = spec.transport->dlcp()->important;
  return proto::TagSource([priority = spec.priority, seed, important](SegmentIndex segment) {
    const std::uint64_t hash = mix_bits(seed + segment.index() * kGoldenStep);
    const double draw = static_cast<double>(hash >> 11) * 0x1p-53;
    return SegmentTag{.priority = priority, .important = draw < important};
  });
}

void DlcpHosts::start_flow(FlowId id, const FlowSpec& spec) {
  const DlcpParameters& parameters = *spec.transport->dlcp();
  CHECK(spec.priority < kPriorityCount);
  const std::uint32_t sender = side_of(parameters, spec.source, spec.target);
  const std::uint32_t receiver = sides_[sender]->other;
  const std::uint32_t index = make_flow(id, spec);
  const proto::TransferSpec transfer = transfer_of(index);

  proto::DlcpEndpoint& target = sides_[receiver]->endpoint;
  const auto receiving = target.start_recv(transfer, events_.now());
  CHECK(receiving.ok(), "{}", receiving.error().message());
  if (parameters.in_advance) {
    // Every other message was polled when it came up, so this is the only one.
    wire::ControlMessage ready;
    const bool has_ready = target.poll_control(ready);
    CHECK(has_ready && std::holds_alternative<wire::ReadyMessage>(ready));
    sides_[sender]->endpoint.on_control(ready, events_.now());
  }
  const auto sending =
      sides_[sender]->endpoint.start_send(transfer, tags_of(spec, prng_.next()), events_.now());
  CHECK(sending.ok(), "{}", sending.error().message());
  const auto partition = tensor::Partition::make(transfer.elements, kDlcpElement, transfer.payload);
  Flow& flow = flows_[index];
  flow.sending = *sending;
  flow.segments = partition->segment_count();
  flow.segment_bytes = static_cast<std::uint32_t>(partition->segment_size().count());
  flow.last_bytes = static_cast<std::uint32_t>(
      partition->segment(SegmentIndex(flow.segments - 1)).length.count());
  drive(receiver);
  drive(sender);
}

void DlcpHosts::offer(FlowId id, exec::Run segments) {
  const auto found = flow_index_.find(id);
  if (found == flow_index_.end()) return;
  const Flow& flow = flows_[found->second];
  const std::uint32_t index =
      side_of(*flow.spec.transport->dlcp(), flow.spec.source, flow.spec.target);
  sides_[index]->endpoint.offer(flow.sending, {segments.begin, segments.end}, events_.now());
  drive(index);
}

std::optional<FlowProgress> DlcpHosts::progress_of(FlowId id) const {
  const auto found = flow_index_.find(id);
  if (found == flow_index_.end()) return std::nullopt;
  const Flow& flow = flows_[found->second];
  const std::uint64_t bytes = static_cast<std::uint64_t>(flow.placed) * flow.segment_bytes;
  return FlowProgress{flow.spec, flow.start, std::min(bytes, flow.spec.bytes)};
}

void DlcpHosts::take_events(Side& side) {
  proto::TransferOutcome outcome;
  while (side.endpoint.poll_event(outcome)) {
    CHECK(outcome.ok(), "{}", outcome.error);
    const auto flow = static_cast<std::uint32_t>(outcome.cookie);
    if (outcome.direction == proto::Direction::kReceive) {
      end_flow(flow, outcome);
    } else {
      flows_[flow].sent = true;
      forget_if_over(flow);
    }
  }
}

void DlcpHosts::forget_if_over(std::uint32_t index) {
  if (flows_[index].received && flows_[index].sent) free_flows_.push_back(index);
}

// The oracle's flow is the least that the bound allows a receiver to end with; the short last
// segment counts as one that arrived.
void DlcpHosts::end_flow(std::uint32_t index, const proto::TransferOutcome& outcome) {
  Flow& flow = flows_[index];
  flow.received = true;
  flow_index_.erase(flow.id);
  const std::int32_t needed = flow.segments - flow.bound.allowed_missing(flow.segments);
  if ((flow.placed < needed || flow.placed != outcome.arrived) && below_bound_++ == 0) {
    first_below_ =
        fmt::format("flow {}: {} of {} segments arrived, its receiver says {}, {} must",
                    flow.id.value(), flow.placed, flow.segments, outcome.arrived, needed);
  }
  FlowResult result;
  result.id = flow.id;
  result.spec = flow.spec;
  result.start = flow.start;
  result.end = events_.now();
  result.counters = flow.counters;
  result.arrived = outcome.fraction();
  const FlowShape least{
      static_cast<std::uint64_t>(needed - 1) * flow.segment_bytes + flow.last_bytes,
      needed > 1 ? flow.segment_bytes : flow.last_bytes, flow.last_bytes, true,
      flow.spec.transport->header_bytes() + framing_bytes_};
  forget_if_over(index);
  done_(result, least);
}

void DlcpHosts::check(bool idle, std::vector<std::string>& violations) const {
  if (below_bound_ > 0) {
    violations.push_back(fmt::format("{} flows ended below their loss bound; the first: {}",
                                     below_bound_, first_below_));
  }
  if (!idle || !flow_index_.empty()) return;
  for (const auto& side : sides_) {
    if (side->endpoint.idle()) continue;
    violations.push_back(fmt::format("the endpoint of {} for {} keeps state of flows that are over",
                                     fabric_.name_of(side->host), fabric_.name_of(side->peer)));
  }
}

}  // namespace thalweg::sim
