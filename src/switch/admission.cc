#include "switch/admission.h"

#include <cmath>

#include "base/check.h"

namespace thalweg {

void AdmissionPolicy::mark_above(Bytes threshold, bool per_port) {
  CHECK(threshold.count() >= 0);
  mark_above_ = threshold.count() == 0 ? kNoLimit : static_cast<std::uint64_t>(threshold.count());
  mark_per_port_ = per_port;
}

void AdmissionPolicy::drop_selectively_above(Bytes threshold, double step) {
  CHECK(threshold.count() >= 0 && step >= 0);
  selective_ = no_thresholds();
  if (threshold.count() == 0) return;
  for (std::uint32_t q = 1; q < kQueuesPerPort; ++q) {
    const double scale = 1 + static_cast<double>(q - 1) * step;
    const double bytes = std::round(static_cast<double>(threshold.count()) * scale);
    selective_[q] = static_cast<std::uint64_t>(bytes);
  }
}

void AdmissionPolicy::reserve_for_control(Bytes bytes) {
  CHECK(bytes.count() >= 0);
  reserve_ = static_cast<std::uint64_t>(bytes.count());
}

}  // namespace thalweg
