// Samples and their exact percentiles. Keeps every sample: the tail of a training step is what we
// are judged by, and a bucketed p99.9 is a guess.
#pragma once

#include <cstddef>
#include <vector>

namespace thalweg {

class Histogram {
 public:
  // A sample must not be NaN.
  void add(double sample);
  void merge(const Histogram& other);

  [[nodiscard]] std::size_t count() const { return samples_.size(); }
  // The following require at least one sample.
  [[nodiscard]] double min() const { return percentile(0); }
  [[nodiscard]] double max() const { return percentile(100); }
  [[nodiscard]] double mean() const;
  // Nearest rank: the smallest sample with at least `percent` of all samples at or below it, so
  // the answer is always a value that was seen. Requires 0 <= percent <= 100.
  [[nodiscard]] double percentile(double percent) const;

 private:
  void sort() const;

  // Sorted on the first query after an add; logically const.
  mutable std::vector<double> samples_;
  mutable bool sorted_ = true;
};

}  // namespace thalweg
