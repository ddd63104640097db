#include "proto/dlcp/loss_bound.h"

#include <fmt/core.h>

#include <cmath>

namespace thalweg::proto {

Result<LossBound> LossBound::of(double fraction) {
  const double ppb = std::round(fraction * kBillion);
  if (!(fraction >= 0 && fraction < 1) || ppb >= kBillion) {
    return Error(fmt::format("a loss bound of {}: it must be at least 0 and below 1", fraction));
  }
  return LossBound(static_cast<std::uint32_t>(ppb));
}

}  // namespace thalweg::proto
