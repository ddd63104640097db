// How much of a tensor may be missing when its transfer ends.
#pragma once

#include <compare>
#include <cstdint>

#include <thalweg/result.h>

#include "base/int128.h"

namespace thalweg::proto {

// A fraction in [0, 1), held exactly as a count of billionths, so that both ends and every machine
// agree to the segment: 0.29 of 100 segments is 29, where the product of doubles is 28.99….
class LossBound {
 public:
  // Nothing may be missing.
  constexpr LossBound() = default;
  // Rounds to the nearest billionth. Fails outside [0, 1) and on NaN.
  static Result<LossBound> of(double fraction);
  // Requires ppb < 10^9.
  static constexpr LossBound parts_per_billion(std::uint32_t ppb) { return LossBound(ppb); }

  [[nodiscard]] constexpr std::uint32_t ppb() const { return ppb_; }
  [[nodiscard]] constexpr double fraction() const { return ppb_ / 1e9; }
  [[nodiscard]] constexpr bool exact() const { return ppb_ == 0; }

  // The most segments of `count` that may be missing: floor(p·count), which is below `count` unless
  // both are 0. Requires count >= 0.
  [[nodiscard]] constexpr std::int32_t allowed_missing(std::int32_t count) const {
    return static_cast<std::int32_t>(static_cast<Int128>(count) * ppb_ / kBillion);
  }

  constexpr auto operator<=>(const LossBound&) const = default;

  static constexpr std::uint32_t kBillion = 1'000'000'000;

 private:
  explicit constexpr LossBound(std::uint32_t ppb) : ppb_(ppb) {}
  std::uint32_t ppb_ = 0;
};

}  // namespace thalweg::proto
