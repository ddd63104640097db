#include "sim/core/shard.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace thalweg::sim {
namespace {

// The span in which about eight events happen when every link is busy with packets of kPacketBytes.
Duration bucket_span(double bytes_per_second) {
  constexpr double kPacketBytes = 1500;
  constexpr double kEventsPerBucket = 8;
  const double packets_per_second = bytes_per_second / kPacketBytes;
  constexpr std::int64_t kLeast = 64;
  constexpr std::int64_t kMost = 1'000'000;
  if (packets_per_second == 0) return Duration::picoseconds(kMost);
  const double span_ps = kEventsPerBucket / packets_per_second * 1e12;
  const double bounded =
      std::clamp(span_ps, static_cast<double>(kLeast), static_cast<double>(kMost));
  return Duration::picoseconds(std::llround(bounded));
}

}  // namespace

Shard::Shard(const topology::Topology& topology, const NetworkOptions& options,
             const ShardMap& shards, std::size_t index)
    : events(bucket_span(shards.bytes_per_second(index))),
      post(shards.count()),
      fabric(topology, options, events, counters, shards, index, post),
      oracle(topology, options.balancing != LoadBalancing::kFlowHash),
      switches(topology, options.aggregation, events, fabric),
      hosts(options, events, fabric, switches, oracle, counters, shards, index, post) {
  fabric.set_stage(&switches);
}

void Shard::run(std::int64_t until_ps) {
  Event event;
  while (!idle() && events.pop(until_ps, event)) {
    if (const Event* next = events.glance(); next != nullptr) fabric.prefetch(*next);
    handle(event);
  }
}

inline void Shard::handle(const Event& event) {
  switch (event.kind()) {
    case EventKind::kArrival:
      if (fabric.arrive(event)) hosts.on_packet(event.subject);
      break;
    case EventKind::kDeparture:
      fabric.depart(event);
      break;
    case EventKind::kFlowEnded:
      hosts.on_ended(event);
      break;
    case EventKind::kFlowClosed:
      hosts.on_closed(event);
      break;
    case EventKind::kPortFree:
      fabric.on_port_free(event);
      break;
    case EventKind::kTimer:
      hosts.on_timer(event);
      break;
    case EventKind::kCall:
      call(event.subject);
      break;
    case EventKind::kDrained:
      hosts.on_drained(Rank(static_cast<std::int32_t>(event.subject)));
      break;
    case EventKind::kDlcpTimer:
      hosts.dlcp().on_timer(event);
      break;
    case EventKind::kDlcpDrained:
      hosts.dlcp().on_drained(Rank(static_cast<std::int32_t>(event.subject)));
      break;
    case EventKind::kAggregationTimer:
      hosts.aggregation().on_timer(event);
      break;
    case EventKind::kAggregationDrained:
      hosts.aggregation().on_drained(Rank(static_cast<std::int32_t>(event.subject)));
      break;
  }
}

void Shard::receive(std::size_t from, Letters& letters) {
  for (const PacketLetter& letter : letters.packets) fabric.receive(letter);
  hosts.receive(from, letters);
  letters.clear();
}

std::int64_t Shard::next_ps() {
  if (idle()) return kNever;
  const std::optional<Time> next = events.next_time();
  return next ? next->since_start().ps() : kNever;
}

void Shard::call_at(Time when, std::function<void()> action) {
  auto index = static_cast<std::uint32_t>(calls_.size());
  if (free_calls_.empty()) {
    calls_.push_back(std::move(action));
  } else {
    index = free_calls_.back();
    free_calls_.pop_back();
    calls_[index] = std::move(action);
  }
  events.push(when.since_start().ps(), EventKind::kCall, index, 0, 0);
}

void Shard::call(std::uint32_t index) {
  const std::function<void()> action = std::exchange(calls_[index], nullptr);
  free_calls_.push_back(index);
  action();
}

void Shard::check(bool network_idle, std::vector<std::string>& violations) const {
  fabric.check(violations);
  switches.check(network_idle, violations);
  hosts.check(network_idle, violations);
}

}  // namespace thalweg::sim
