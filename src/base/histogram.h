// Histogram: samples and their exact percentiles. It keeps every sample, because the tail of a
// training step is what counts, and a p99.9 from buckets is a guess.
#pragma once

#include <cstddef>
#include <vector>

namespace thalweg {

class Histogram {
 public:
  // Requires a sample that is not NaN.
  void add(double sample);
  void merge(const Histogram& other);

  [[nodiscard]] std::size_t count() const { return samples_.size(); }
  // The following require at least one sample.
  [[nodiscard]] double min() const { return percentile(0); }
  [[nodiscard]] double max() const { return percentile(100); }
  [[nodiscard]] double mean() const;
  // By nearest rank: returns the smallest sample with at least `percent` of all samples at or below
  // it, so the result is always a value that was added. Requires 0 <= percent <= 100.
  [[nodiscard]] double percentile(double percent) const;

 private:
  void sort() const;

  // Sorted on the first query after an add; logically const.
  mutable std::vector<double> samples_;
  mutable bool sorted_ = true;
};

}  // namespace thalweg
