#include "sim/core/link_loss.h"

#include "base/check.h"

namespace thalweg::sim {

void LinkLoss::set_random(double probability) {
  CHECK(probability >= 0 && probability <= 1, "loss probability {}", probability);
  probability_ = probability;
  leave_good_ = leave_bad_ = 0;
  bad_ = false;
}

void LinkLoss::set_bursty(double good_packets, double bad_packets) {
  CHECK(good_packets >= 1 && bad_packets >= 1, "bursts of {} after {}", bad_packets, good_packets);
  probability_ = 0;
  leave_good_ = 1 / good_packets;
  leave_bad_ = 1 / bad_packets;
  bad_ = false;
}

bool LinkLoss::loses() {
  if (leave_good_ == 0) return prng_.chance(probability_);
  const bool lost = bad_;
  if (prng_.chance(bad_ ? leave_bad_ : leave_good_)) bad_ = !bad_;
  return lost;
}

}  // namespace thalweg::sim
