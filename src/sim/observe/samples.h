// What the network carried, held and lost over time, in a bounded number of samples.
//
// The sampler runs the network in slices and looks at it between them. It adds no events, so it
// neither keeps a run alive nor changes its result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "sim/core/network.h"

namespace thalweg::sim {

// A table of counts by sample and column.
template <class Count>
class SampleTable {
 public:
  explicit SampleTable(std::size_t columns) : columns_(columns) {}

  [[nodiscard]] std::span<const Count> operator[](std::size_t sample) const {
    return std::span(counts_).subspan(sample * columns_, columns_);
  }
  std::span<Count> add_sample() {
    counts_.resize(counts_.size() + columns_);
    return std::span(counts_).last(columns_);
  }
  // Samples 2i and 2i + 1 become sample i, each column by `merge(first, second)`.
  template <class Merge>
  void merge_pairs(std::size_t samples, Merge merge) {
    const std::size_t left = (samples + 1) / 2;
    for (std::size_t i = 0; i < left; ++i) {
      const std::size_t first = 2 * i * columns_;
      const std::size_t second = 2 * i + 1 < samples ? first + columns_ : first;
      for (std::size_t c = 0; c < columns_; ++c) {
        counts_[i * columns_ + c] = merge(counts_[first + c], counts_[second + c]);
      }
    }
    counts_.resize(left * columns_);
  }

 private:
  std::size_t columns_;
  std::vector<Count> counts_;
};

// Sample i covers the time from ends[i - 1] (the start of the run for the first) to ends[i]. The
// columns of `carried`, `deepest` and `lost` are arcs, those of `delivered` groups of flows.
struct Samples {
  Samples(std::size_t arcs, std::size_t groups)
      : carried(arcs), deepest(arcs), lost(arcs), delivered(groups), causes(kCauses) {}

  enum Cause : std::uint8_t { kLostFull, kLostSelectively, kLostToFaults, kMarked, kCauses };

  std::vector<Time> ends;
  SampleTable<std::uint64_t> carried;    // wire bytes since the start of the run
  SampleTable<std::uint32_t> deepest;    // most bytes that waited at the arc's port at once
  SampleTable<std::uint32_t> lost;       // packets since the start of the run
  SampleTable<std::uint64_t> delivered;  // payload bytes since the start of the run
  SampleTable<std::uint64_t> causes;     // packets since the start of the run, by Cause

  [[nodiscard]] std::size_t count() const { return ends.size(); }
  [[nodiscard]] Time start_of(std::size_t sample) const {
    return sample == 0 ? Time() : ends[sample - 1];
  }
};

struct SamplerOptions {
  // Delivered bytes are counted by group of flows.
  std::size_t groups = 1;
  std::function<std::size_t(const FlowSpec&)> group_of = [](const FlowSpec&) {
    return std::size_t{0};
  };
  // The first interval between samples. Whenever there are `most_samples`, neighbours are merged
  // and the interval doubles.
  Duration interval = Duration::microseconds(1);
  std::size_t most_samples = 1024;  // at least 2; fewer in networks with very many links
};

class Sampler {
 public:
  // The network must be new, and outlive every use of the sampler.
  Sampler(Network& network, SamplerOptions options);
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // Works as Network::run().
  bool run(Time until);
  // Takes a last, shorter sample. Must be called once, at the end of the run.
  void finish();

  [[nodiscard]] const Samples& samples() const { return samples_; }

 private:
  void take_sample();
  void halve();
  void count_delivered(std::span<std::uint64_t> by_group);

  Network& network_;
  const SamplerOptions options_;
  const std::size_t most_samples_;
  Duration interval_;
  Time next_;
  Samples samples_;
  std::vector<std::uint64_t> ended_bytes_;  // [group]: bytes of flows that have ended
  std::vector<FlowId> live_;                // flows not known to have ended
  std::size_t flows_seen_ = 0;
};

}  // namespace thalweg::sim
