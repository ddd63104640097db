#include "switch/queueing/admission.h"

#include <cmath>

#include "base/check.h"

namespace thalweg::switches {

void AdmissionPolicy::mark_above(Bytes threshold, bool per_port) {
  CHECK(threshold.count() >= 0);
  mark_above_ = threshold.count() == 0 ? kNoLimit : static_cast<std::uint64_t>(threshold.count());
  mark_per_port_ = per_port;
}

void AdmissionPolicy::drop_selectively_above(Bytes threshold, double step) {
  CHECK(threshold.count() >= 0 && step >= 0);
  selective_ = unlimited();
  if (threshold.count() == 0) return;
  for (std::uint32_t q = 1; q < kQueuesPerPort; ++q) {
    const double scale = 1 + static_cast<double>(q - 1) * step;
    const double bytes = std::round(static_cast<double>(threshold.count()) * scale);
    selective_[q] = static_cast<std::uint64_t>(bytes);
  }
}

AdmissionPolicy::PerQueue AdmissionPolicy::of_data_queues(std::span<const Bytes> values) {
  CHECK(values.size() == kDataQueues, "{} values for {} queues", values.size(), kDataQueues);
  PerQueue all = unlimited();
  for (std::size_t i = 0; i < values.size(); ++i) {
    CHECK(values[i].count() > 0);
    all[i + 1] = static_cast<std::uint64_t>(values[i].count());
  }
  return all;
}

void AdmissionPolicy::drop_selectively_above(std::span<const Bytes> thresholds) {
  selective_ = of_data_queues(thresholds);
}

void AdmissionPolicy::limit_queues(std::span<const Bytes> limits) {
  limits_ = of_data_queues(limits);
}

void AdmissionPolicy::reserve_for_control(Bytes bytes) {
  CHECK(bytes.count() >= 0);
  reserve_ = static_cast<std::uint64_t>(bytes.count());
}

}  // namespace thalweg::switches
