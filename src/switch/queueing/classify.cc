#include "switch/queueing/classify.h"

#include "base/check.h"

namespace thalweg::switches {

DscpClassifier::DscpClassifier() {
  for (std::uint32_t dscp = 0; dscp < kDscpValues; ++dscp) {
    queues_[dscp] = static_cast<std::uint8_t>(kQueuesPerPort - 1 - dscp / 8);
  }
}

void DscpClassifier::map(std::uint8_t dscp, std::uint8_t queue) {
  CHECK(dscp < kDscpValues, "DSCP {} is not below {}", dscp, kDscpValues);
  CHECK(queue < kQueuesPerPort, "queue {} is not below {}", queue, kQueuesPerPort);
  queues_[dscp] = queue;
}

}  // namespace thalweg::switches
