#include "sim/observe/samples.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace thalweg::sim {
namespace {

// The most samples times arcs: bounds memory to some tens of megabytes, and the time of a sample.
constexpr std::size_t kMostCells = 2'000'000;
constexpr std::size_t kFewestSamples = 32;

std::uint32_t narrow(std::uint64_t count) {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(count, std::numeric_limits<std::uint32_t>::max()));
}

}  // namespace

Sampler::Sampler(Network& network, SamplerOptions options)
    : network_(network),
      options_(std::move(options)),
      most_samples_(std::min(
          options_.most_samples,
          std::max(kFewestSamples,
                   kMostCells / std::max<std::size_t>(1, network.topology().arc_count())))),
      interval_(options_.interval),
      next_(network.now() + interval_),
      samples_(network.topology().arc_count(), options_.groups),
      ended_bytes_(options_.groups, 0) {
  CHECK(most_samples_ >= 2 && interval_ > Duration());
  CHECK(network.now() == Time() && network.flows_started() == 0, "the network has run already");
  network.on_flow_done([this](const FlowResult& flow) {
    ended_bytes_[options_.group_of(flow.spec)] += flow.spec.bytes;
  });
}

bool Sampler::run(Time until) {
  for (;;) {
    const bool finished = network_.run(std::min(next_, until));
    if (finished) return true;
    if (next_ <= until) {
      take_sample();
      if (samples_.count() == most_samples_) halve();
      next_ = samples_.ends.back() + interval_;
    }
    if (network_.now() >= until) return false;
  }
}

void Sampler::finish() {
  const Time last = samples_.count() == 0 ? Time() : samples_.ends.back();
  if (network_.now() > last) take_sample();
}

void Sampler::take_sample() {
  samples_.ends.push_back(network_.now());
  const auto carried = samples_.carried.add_sample();
  const auto deepest = samples_.deepest.add_sample();
  const auto lost = samples_.lost.add_sample();
  std::ranges::copy(network_.arc_bytes(), carried.begin());
  for (std::size_t a = 0; a < carried.size(); ++a) {
    const topology::ArcId arc(static_cast<std::int32_t>(a));
    deepest[a] = narrow(network_.take_queue_peak(arc));
    lost[a] = narrow(network_.drops_at(arc));
  }
  count_delivered(samples_.delivered.add_sample());
  const NetworkCounters& counters = network_.counters();
  const auto causes = samples_.causes.add_sample();
  causes[Samples::kLostFull] = counters.drops_full;
  causes[Samples::kLostSelectively] = counters.drops_selective;
  causes[Samples::kLostToFaults] = counters.drops_fault;
  causes[Samples::kMarked] = counters.marks;
}

void Sampler::count_delivered(std::span<std::uint64_t> by_group) {
  for (; flows_seen_ < network_.flows_started(); ++flows_seen_) {
    live_.emplace_back(static_cast<std::int32_t>(flows_seen_));
  }
  std::ranges::copy(ended_bytes_, by_group.begin());
  std::erase_if(live_, [&](FlowId id) {
    const auto progress = network_.progress_of(id);
    if (!progress) return true;
    by_group[options_.group_of(progress->spec)] += progress->received;
    return false;
  });
}

void Sampler::halve() {
  const std::size_t count = samples_.count();
  const auto later = [](auto /*first*/, auto second) { return second; };
  const auto larger = [](auto first, auto second) { return std::max(first, second); };
  samples_.carried.merge_pairs(count, later);
  samples_.deepest.merge_pairs(count, larger);
  samples_.lost.merge_pairs(count, later);
  samples_.delivered.merge_pairs(count, later);
  samples_.causes.merge_pairs(count, later);
  std::vector<Time> ends;
  for (std::size_t i = 0; i < count; i += 2) {
    ends.push_back(samples_.ends[std::min(i + 1, count - 1)]);
  }
  samples_.ends = std::move(ends);
  interval_ = interval_ * 2;
}

}  // namespace thalweg::sim
