#include "base/histogram.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace thalweg {

void Histogram::add(double sample) {
  CHECK(!std::isnan(sample));
  samples_.push_back(sample);
  sorted_ = false;
}

void Histogram::merge(const Histogram& other) {
  samples_.insert(samples_.end(), other.samples_.begin(), other.samples_.end());
  sorted_ = false;
}

double Histogram::mean() const {
  CHECK(!samples_.empty());
  // In sorted order, so that the result does not depend on the order of the adds.
  sort();
  double sum = 0;
  for (const double sample : samples_) sum += sample;
  return sum / static_cast<double>(samples_.size());
}

double Histogram::percentile(double percent) const {
  CHECK(!samples_.empty());
  CHECK(percent >= 0 && percent <= 100, "percentile {}", percent);
  sort();
  const auto count = static_cast<double>(samples_.size());
  const auto nearest_rank = static_cast<std::size_t>(std::ceil(percent / 100 * count));
  return samples_[std::max<std::size_t>(nearest_rank, 1) - 1];
}

void Histogram::sort() const {
  if (sorted_) return;
  std::sort(samples_.begin(), samples_.end());
  sorted_ = true;
}

}  // namespace thalweg
