// Distributions of flow sizes: by name, as the papers on datacenter transports use them, or given
// point by point.
#pragma once

#include <string_view>
#include <vector>

#include <thalweg/result.h>

#include "base/prng.h"
#include "base/units.h"

namespace thalweg {

// Between two points the probability grows linearly with the size; below the first it is that of
// the first, so a single point is a fixed size.
class FlowSizes {
 public:
  struct Point {
    Bytes size;
    double probability = 1;  // that a flow is at most this large
  };

  static FlowSizes fixed(Bytes size) { return FlowSizes({{size, 1}}); }
  // Sizes above 0 and rising, probabilities within 0 and 1 and rising, the last 1.
  static Result<FlowSizes> from_points(std::vector<Point> points);
  // "web-search" (Alizadeh et al., DCTCP) or "data-mining" (Greenberg et al., VL2). The error lists
  // the names.
  static Result<FlowSizes> by_name(std::string_view name);

  [[nodiscard]] Bytes draw(Prng& prng) const;
  [[nodiscard]] double mean_bytes() const;

 private:
  explicit FlowSizes(std::vector<Point> points) : points_(std::move(points)) {}

  std::vector<Point> points_;
};

}  // namespace thalweg
