// Proportional rate reduction (RFC 6937, as Linux has it): how much a sender in recovery may have
// in flight.
//
// While more than the threshold is in flight, it sends `threshold / outstanding` of what
// acknowledgements say has arrived, so that the window comes down within a round trip without a
// pause. When less is in flight, because much was lost, it sends as much as has arrived, and a
// segment more with each acknowledgement that does not tell of further losses, up to the threshold:
// so what was lost does not leave in one burst.
#pragma once

#include <algorithm>

namespace thalweg::sim {

// All in bytes.
class RateReduction {
 public:
  // A recovery begins, with `outstanding` sent and not acknowledged in order.
  void begin(double threshold, double outstanding) {
    threshold_ = threshold;
    outstanding_ = outstanding;
    delivered_ = sent_ = allowance_ = 0;
  }
  void on_sent(double bytes) { sent_ += bytes; }
  // An acknowledgement says that `delivered` have arrived, more than 0, after which `in_flight` are
  // in flight. `repaired`: it moves the first missing byte and tells of no further loss.
  void on_delivered(double delivered, double in_flight, bool repaired, double segment) {
    delivered_ += delivered;
    double more = 0;
    if (in_flight > threshold_) {
      more = threshold_ * delivered_ / outstanding_ - sent_;
    } else {
      more = std::max(delivered_ - sent_, delivered) + (repaired ? segment : 0);
      more = std::min(more, threshold_ - in_flight);
    }
    // The first segment is sent again at once.
    if (sent_ == 0) more = std::max(more, segment);
    allowance_ = in_flight + std::max(more, 0.0);
  }
  // How much may be in flight until the next acknowledgement.
  [[nodiscard]] double allowance() const { return allowance_; }

 private:
  double threshold_ = 0;
  double outstanding_ = 0;
  double delivered_ = 0;
  double sent_ = 0;
  double allowance_ = 0;
};

}  // namespace thalweg::sim
