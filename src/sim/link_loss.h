// Loss on a link: independent, or in bursts (Gilbert-Elliott). One a direction, each with its own
// generator, so that a fault on one link does not change the draws on another.
#pragma once

#include "base/prng.h"

namespace thalweg {

class LinkLoss {
 public:
  explicit LinkLoss(Prng prng) : prng_(prng) {}

  // Every packet is lost with this probability. Ends bursts.
  void set_random(double probability);
  // Two states; in the bad one every packet is lost. A state lasts a geometric number of packets of
  // the given mean. Starts good. Requires both means at or above 1.
  void set_bursty(double good_packets, double bad_packets);
  [[nodiscard]] bool active() const { return probability_ > 0 || leave_good_ > 0; }

  // True if the next packet is lost.
  bool loses();

 private:
  Prng prng_;
  double probability_ = 0;
  double leave_good_ = 0;  // above 0: bursty
  double leave_bad_ = 0;
  bool bad_ = false;
};

}  // namespace thalweg
