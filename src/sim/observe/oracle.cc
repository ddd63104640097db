#include "sim/observe/oracle.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace thalweg::sim {
namespace {

std::int64_t time_of(Bandwidth rate, std::uint64_t bytes) {
  return rate.transmission_time(Bytes(static_cast<std::int64_t>(bytes))).ps();
}

}  // namespace

Oracle::Oracle(const topology::Topology& topology, bool spread)
    : topology_(topology), routes_(topology), spread_(spread) {
  for (const topology::Link& link : topology.links()) rates_.push_back(link.spec.rate);
}

void Oracle::allow_spread() {
  if (spread_) return;
  spread_ = true;
  cache_.clear();
}

void Oracle::raise_rate(topology::LinkId link, Bandwidth rate) {
  if (rate <= rates_[link.index()]) return;
  rates_[link.index()] = rate;
  cache_.clear();
}

Oracle::Stage Oracle::stage_of(const std::vector<std::uint32_t>& arcs) const {
  Stage stage;
  stage.delay_ps = std::numeric_limits<std::int64_t>::max();
  for (const std::uint32_t arc : arcs) {
    const Bandwidth rate = rates_[arc / 2];
    stage.rate = std::max(stage.rate, rate);
    stage.together += rate;
    const topology::ArcId id(static_cast<std::int32_t>(arc));
    stage.delay_ps = std::min(stage.delay_ps, topology_.arc(id).spec.delay.ps());
  }
  stage.arcs = spread_ ? static_cast<std::int64_t>(arcs.size()) : 1;
  if (!spread_) stage.together = stage.rate;
  return stage;
}

const Oracle::Stages& Oracle::core_stages(std::uint32_t node, Rank to) {
  const auto target = static_cast<std::uint32_t>(to.value());
  const std::uint32_t end = routes_.end_node(target);
  const auto [found, is_new] = cache_.try_emplace({node, end});
  Stages& stages = found->second;
  if (!is_new) return stages;
  std::vector<std::uint32_t> here{node};
  while (here.front() != end) {
    std::vector<std::uint32_t> arcs;
    std::vector<std::uint32_t> next;
    for (const std::uint32_t n : here) {
      for (const std::uint32_t arc : routes_.hops(n, target)) {
        arcs.push_back(arc);
        const topology::ArcId id(static_cast<std::int32_t>(arc));
        next.push_back(static_cast<std::uint32_t>(topology_.arc(id).to.value()));
      }
    }
    CHECK(!arcs.empty());
    std::sort(next.begin(), next.end());
    next.erase(std::unique(next.begin(), next.end()), next.end());
    stages.push_back(stage_of(arcs));
    here = std::move(next);
  }
  return stages;
}

void Oracle::find_stages(Rank from, Rank to) {
  const auto target = static_cast<std::uint32_t>(to.value());
  auto node = static_cast<std::uint32_t>(topology_.host(from).value());
  const std::uint32_t end = routes_.end_node(target);
  scratch_.clear();
  // Hosts with one link have a first and a last hop of their own; the hops between are shared.
  const std::uint32_t own = routes_.end_node(static_cast<std::uint32_t>(from.value()));
  if (own != node) {
    const std::uint32_t arc = routes_.hops(node, target).front();
    scratch_.push_back(stage_of({arc}));
    node = own;
  }
  const Stages& core = core_stages(node, to);
  scratch_.insert(scratch_.end(), core.begin(), core.end());
  if (end != static_cast<std::uint32_t>(topology_.host(to).value())) {
    scratch_.push_back(stage_of({routes_.hops(end, target).front()}));
  }
}

Duration Oracle::completion_time(Rank from, Rank to, const FlowShape& shape) {
  find_stages(from, to);
  return shape.uniform ? pipeline(scratch_, shape) : loose_bound(scratch_, shape);
}

Duration Oracle::propagation_time(Rank from, Rank to) {
  find_stages(from, to);
  std::int64_t sum = 0;
  for (const Stage& stage : scratch_) sum += stage.delay_ps;
  return Duration::picoseconds(sum);
}

Duration Oracle::pipeline(const Stages& stages, const FlowShape& shape) {
  const auto full = static_cast<std::int64_t>((shape.bytes - 1) / shape.segment);
  const std::uint64_t rest = shape.bytes - static_cast<std::uint64_t>(full) * shape.segment;
  const std::uint64_t full_wire = std::uint64_t{shape.segment} + shape.overhead_bytes;
  const std::uint64_t rest_wire = rest + shape.overhead_bytes;

  std::int64_t first = 0;  // when the first packet arrives at the end of the stage
  std::int64_t held = 0;   // by how much the slowest stage so far spreads the full packets
  std::int64_t last = 0;   // when the last packet arrives at the end of the stage
  bool in_order = true;    // no stage so far lets packets overtake
  for (const Stage& stage : stages) {
    const std::int64_t alone = time_of(stage.rate, full_wire);
    const bool single = stage.arcs == 1;
    // A spacing that is rounded up, taken many times, could exceed the time of the whole: use a
    // smaller one.
    const std::int64_t spacing = single ? alone : time_of(stage.together, full_wire) - 1;
    const std::int64_t queued = std::max<std::int64_t>(0, full - (single ? 1 : stage.arcs));
    held = std::max(held, queued * spacing);
    first += alone + stage.delay_ps;
    const std::int64_t line_free = first + held - stage.delay_ps;
    in_order = in_order && single;
    if (full > 0 && in_order) last = std::max(last, line_free);
    last += time_of(stage.rate, rest_wire) + stage.delay_ps;
  }
  return Duration::picoseconds(full > 0 ? std::max(last, first + held) : last);
}

Duration Oracle::loose_bound(const Stages& stages, const FlowShape& shape) {
  const std::uint64_t packets = (shape.bytes - 1) / shape.segment + 1;
  const std::uint64_t wire = shape.bytes + packets * shape.overhead_bytes;
  const std::uint64_t least = std::uint64_t{shape.smallest} + shape.overhead_bytes;
  std::int64_t sum = 0;
  std::int64_t slowest = 0;
  for (const Stage& stage : stages) {
    const std::int64_t one = time_of(stage.rate, least);
    sum += one + stage.delay_ps;
    slowest = std::max(slowest, time_of(stage.together, wire) - one);
  }
  return Duration::picoseconds(sum + slowest);
}

}  // namespace thalweg::sim
