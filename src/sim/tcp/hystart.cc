#include "sim/tcp/hystart.h"

#include <algorithm>

namespace thalweg::sim {
namespace {

// The constants are those of Linux.
constexpr double kLowWindowSegments = 16;
constexpr Duration kMostGapInTrain = Duration::microseconds(2000);
constexpr std::uint32_t kSamples = 8;
constexpr Duration kLeastIncrease = Duration::microseconds(4000);
constexpr Duration kMostIncrease = Duration::microseconds(16'000);
constexpr Duration kMostBurstTime = Duration::microseconds(1000);
constexpr double kBurstBytes = 4 * 65'536;
// Linux spreads a window in slow start over half a round trip where it paces, and reckons with that
// rate also where it does not.
constexpr double kPacingGain = 2;

// How long bursts of segmentation offload may hold back acknowledgements.
Duration burst_time(const HyStart::Ack& ack) {
  const double seconds = kBurstBytes / (kPacingGain * ack.window) * ack.smoothed.s();
  if (seconds >= kMostBurstTime.s()) return kMostBurstTime;
  return Duration::picoseconds(static_cast<std::int64_t>(seconds * 1e12));
}

}  // namespace

bool HyStart::is_full(const Ack& ack) {
  if (least_ == Duration() || ack.round_trip < least_) least_ = ack.round_trip;
  if (ack.acked > round_end_) {
    round_start_ = last_of_train_ = ack.now;
    round_end_ = ack.sent;
    round_least_ = ack.round_trip;
    samples_ = 0;
  }
  if (ack.window_segments < kLowWindowSegments) return false;

  if (ack.now - last_of_train_ <= kMostGapInTrain) {
    last_of_train_ = ack.now;
    if (ack.now - round_start_ > (least_ + burst_time(ack)) / 2) return true;
  }
  round_least_ = std::min(round_least_, ack.round_trip);
  if (samples_ < kSamples) {
    ++samples_;
    return false;
  }
  return round_least_ > least_ + std::clamp(least_ / 8, kLeastIncrease, kMostIncrease);
}

}  // namespace thalweg::sim
