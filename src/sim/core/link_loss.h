// Loss on a link: independent, or in bursts (Gilbert-Elliott). Each direction has one, with its own
// generator, so that a fault on one link does not change the draws on another.
#pragma once

#include "base/prng.h"

namespace thalweg::sim {

class LinkLoss {
 public:
  explicit LinkLoss(Prng prng) : prng_(prng) {}

  // Loses every packet with this probability, and ends bursts.
  void set_random(double probability);
  // Alternates between a good and a bad state, and loses every packet in the bad one. A state lasts
  // a geometric number of packets with the given mean. Starts in the good state. Requires both
  // means at or above 1.
  void set_bursty(double good_packets, double bad_packets);
  [[nodiscard]] bool active() const { return probability_ > 0 || leave_good_ > 0; }

  // Draws whether the next packet is lost.
  bool loses();

 private:
  Prng prng_;
  double probability_ = 0;
  double leave_good_ = 0;  // per packet, probability to leave the good state; above 0: bursty
  double leave_bad_ = 0;
  bool bad_ = false;
};

}  // namespace thalweg::sim
