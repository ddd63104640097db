// What losing gradients costs a training, per layer and magnitude: the f^S and f^L of DLCP's
// appendix B, as a user states them.
//
// The cost of losing a share r of the small (large) gradients of layer l is
// layer_l · small · r^exponent (layer_l · large · r^exponent). All layers of a queue lose the same
// share, so the weight of a queue is the sum over its layers.
//
// Defaults: one over the loss that figure 5 of the paper says is tolerated without more rounds, in
// per cent: front layers 1.1, back layers 0.4, and a straight line between; small gradients 1.6,
// large ones 0.1.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "tune/thresholds.h"

namespace thalweg {

struct ConvergenceWeights {
  double front = 1 / 1.1;  // of the first layer of the forward pass
  double back = 1 / 0.4;   // of the last
  double small = 1 / 1.6;
  double large = 1 / 0.1;
  double exponent = 1;
  std::map<std::string, double, std::less<>> layers;  // instead of the line, by name

  bool operator==(const ConvergenceWeights&) const = default;
};

inline constexpr double kLeastWeight = 1e-9;
inline constexpr double kMostWeight = 1e9;
inline constexpr double kMostExponent = 100;

// docs/operating.md has the format. `source` names the file in errors.
Result<ConvergenceWeights> weights_from_yaml(std::string_view text, std::string_view source);

struct TunedLayer {
  std::string name;
  Bytes size;
};

// How a model's layers, front first, fall on the queues for data.
struct QueueLoads {
  std::vector<double> shares;        // of the bytes
  std::vector<LossWeights> weights;  // sums over the layers, over the number of layers
  std::vector<std::size_t> first;    // layer of each queue; one more entry ends the last queue
};

// Requires at least one layer and 1 <= data_queues. An error names a layer of the weights that the
// model does not have.
Result<QueueLoads> queue_loads(std::span<const TunedLayer> layers, std::size_t data_queues,
                               const ConvergenceWeights& weights);

}  // namespace thalweg
