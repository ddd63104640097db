// Distributions of flow sizes: by name, as papers on datacenter transports use them, or given point
// by point.
#pragma once

#include <string_view>
#include <vector>

#include <thalweg/result.h>

#include "base/prng.h"
#include "base/units.h"

namespace thalweg::sim {

// Between two points the cumulative probability grows linearly with the size; all the probability
// of the first point lies at its size, so a single point is a fixed size.
class FlowSizes {
 public:
  struct Point {
    Bytes size;
    double probability = 1;  // probability that a flow is at most this large
  };

  static FlowSizes fixed(Bytes size) { return FlowSizes({{size, 1}}); }
  // Requires sizes above 0 and rising, probabilities from 0 to 1 and rising, and the last 1.
  static Result<FlowSizes> from_points(std::vector<Point> points);
  // Takes "web-search" (Alizadeh et al., DCTCP) or "data-mining" (Greenberg et al., VL2). An error
  // lists the names.
  static Result<FlowSizes> by_name(std::string_view name);

  [[nodiscard]] Bytes draw(Prng& prng) const;
  [[nodiscard]] double mean_bytes() const;

 private:
  explicit FlowSizes(std::vector<Point> points) : points_(std::move(points)) {}

  std::vector<Point> points_;
};

}  // namespace thalweg::sim
