#include "sim/core/network.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "sim/atp/aggregation_switches.h"
#include "sim/core/event_queue.h"
#include "sim/core/fabric.h"
#include "sim/hosts/host.h"
#include "sim/observe/oracle.h"

namespace thalweg::sim {
namespace {

// The span in which about eight events happen when every link is busy with packets of kPacketBytes.
Duration bucket_span(const topology::Topology& topology) {
  constexpr double kPacketBytes = 1500;
  constexpr double kEventsPerBucket = 8;
  double packets_per_second = 0;
  for (const topology::Link& link : topology.links()) {
    packets_per_second += 2 * link.spec.rate.bytes_per_second() / kPacketBytes;
  }
  constexpr std::int64_t kLeast = 64;
  constexpr std::int64_t kMost = 1'000'000;
  if (packets_per_second == 0) return Duration::picoseconds(kMost);
  const double span_ps = kEventsPerBucket / packets_per_second * 1e12;
  const double bounded =
      std::clamp(span_ps, static_cast<double>(kLeast), static_cast<double>(kMost));
  return Duration::picoseconds(std::llround(bounded));
}

}  // namespace

class Network::Impl {
 public:
  Impl(const topology::Topology& topology, const NetworkOptions& options)
      : topology_(topology),
        events_(bucket_span(topology)),
        fabric_(topology, options, events_, counters_),
        oracle_(topology, options.balancing != LoadBalancing::kFlowHash),
        switches_(topology, options.aggregation, events_, fabric_),
        hosts_(options, events_, fabric_, switches_, oracle_, counters_) {
    fabric_.set_stage(&switches_);
  }

  bool run(std::int64_t until_ps);
  void call_at(Time when, std::function<void()> action);
  const NetworkCounters& counters();
  [[nodiscard]] std::vector<std::string> violations() const;

  const topology::Topology& topology_;
  NetworkCounters counters_;
  EventQueue events_;
  Fabric fabric_;
  Oracle oracle_;
  AggregationSwitches switches_;
  Hosts hosts_;

 private:
  // Only void timer events are left, so there is no reason to advance time.
  [[nodiscard]] bool idle() const { return events_.size() == hosts_.void_timers(); }
  void call(std::uint32_t index);

  std::vector<std::function<void()>> calls_;
  std::vector<std::uint32_t> free_calls_;
};

bool Network::Impl::run(std::int64_t until_ps) {
  Event event;
  while (!idle() && events_.pop(until_ps, event)) {
    if (const Event* next = events_.glance(); next != nullptr) fabric_.prefetch(*next);
    switch (event.kind()) {
      case EventKind::kArrival:
        if (fabric_.arrive(event)) hosts_.on_packet(event.subject);
        break;
      case EventKind::kPortFree:
        fabric_.on_port_free(event);
        break;
      case EventKind::kTimer:
        hosts_.on_timer(event);
        break;
      case EventKind::kCall:
        call(event.subject);
        break;
      case EventKind::kDrained:
        hosts_.on_drained(Rank(static_cast<std::int32_t>(event.subject)));
        break;
      case EventKind::kDlcpTimer:
        hosts_.dlcp().on_timer(event);
        break;
      case EventKind::kDlcpDrained:
        hosts_.dlcp().on_drained(Rank(static_cast<std::int32_t>(event.subject)));
        break;
      case EventKind::kAggregationTimer:
        hosts_.aggregation().on_timer(event);
        break;
      case EventKind::kAggregationDrained:
        hosts_.aggregation().on_drained(Rank(static_cast<std::int32_t>(event.subject)));
        break;
    }
  }
  if (idle()) return true;
  if (until_ps > events_.now_ps()) events_.advance_to(until_ps);
  return false;
}

void Network::Impl::call_at(Time when, std::function<void()> action) {
  auto index = static_cast<std::uint32_t>(calls_.size());
  if (free_calls_.empty()) {
    calls_.push_back(std::move(action));
  } else {
    index = free_calls_.back();
    free_calls_.pop_back();
    calls_[index] = std::move(action);
  }
  events_.push(when.since_start().ps(), EventKind::kCall, index, 0, 0);
}

void Network::Impl::call(std::uint32_t index) {
  const std::function<void()> action = std::exchange(calls_[index], nullptr);
  free_calls_.push_back(index);
  action();
}

const NetworkCounters& Network::Impl::counters() {
  counters_.events = events_.taken();
  counters_.peak_packets = fabric_.pool().peak();
  counters_.peak_host_backlog = fabric_.peak_host_backlog();
  return counters_;
}

std::vector<std::string> Network::Impl::violations() const {
  std::vector<std::string> all;
  fabric_.check(all);
  switches_.check(idle(), all);
  hosts_.check(idle(), all);
  return all;
}

Network::Network(const topology::Topology& topology, const NetworkOptions& options)
    : impl_(std::make_unique<Impl>(topology, options)) {}
Network::~Network() = default;

Time Network::now() const { return impl_->events_.now(); }
const topology::Topology& Network::topology() const { return impl_->topology_; }
Result<std::int32_t> Network::add_aggregation(const AggregationSpec& spec) {
  return impl_->hosts_.aggregation().add(spec);
}
AggregationCounters Network::aggregation_counters(std::int32_t aggregation) const {
  return impl_->hosts_.aggregation().counters(aggregation);
}
const std::vector<std::string>& Network::aggregation_failures() const {
  return impl_->hosts_.aggregation().failures();
}
FlowId Network::start_flow(const FlowSpec& spec) { return impl_->hosts_.start_flow(spec); }
void Network::offer(FlowId flow, exec::Run pieces) { impl_->hosts_.offer(flow, pieces); }
void Network::call_at(Time when, std::function<void()> action) {
  impl_->call_at(when, std::move(action));
}
void Network::on_flow_done(std::function<void(const FlowResult&)> callback) {
  impl_->hosts_.on_flow_done(std::move(callback));
}
bool Network::run(Time until) { return impl_->run(until.since_start().ps()); }

const NetworkCounters& Network::counters() const { return impl_->counters(); }
const std::vector<std::uint64_t>& Network::arc_bytes() const { return impl_->fabric_.arc_bytes(); }
std::uint64_t Network::queued_bytes(topology::ArcId arc) const {
  return impl_->fabric_.queued_bytes(arc);
}
std::uint64_t Network::take_queue_peak(topology::ArcId arc) {
  return impl_->fabric_.take_queue_peak(arc);
}
std::uint64_t Network::drops_at(topology::ArcId arc) const { return impl_->fabric_.drops_at(arc); }
std::size_t Network::flows_started() const { return impl_->hosts_.flows_started(); }
std::optional<FlowProgress> Network::progress_of(FlowId flow) const {
  return impl_->hosts_.progress_of(flow);
}
std::size_t Network::active_flows() const { return impl_->hosts_.active_flows(); }

void Network::set_loss(topology::ArcId arc, double probability) {
  impl_->fabric_.set_loss(arc, probability);
}
void Network::set_bursty_loss(topology::ArcId arc, double good_packets, double bad_packets) {
  impl_->fabric_.set_bursty_loss(arc, good_packets, bad_packets);
}
void Network::set_link_up(topology::LinkId link, bool up) {
  impl_->oracle_.allow_spread();
  impl_->fabric_.set_link_up(link, up);
}
void Network::set_rate_factor(topology::LinkId link, double factor) {
  impl_->oracle_.raise_rate(link, impl_->fabric_.set_rate_factor(link, factor));
}
void Network::set_host_paused(Rank host, bool paused) {
  impl_->fabric_.set_host_paused(host, paused);
  if (paused) return;
  impl_->hosts_.on_drained(host);
  impl_->hosts_.dlcp().resume(host);
  impl_->hosts_.aggregation().resume(host);
}
void Network::restart_switch(topology::NodeId node) { impl_->fabric_.restart_switch(node); }

std::vector<std::string> Network::violations() const { return impl_->violations(); }

}  // namespace thalweg::sim
