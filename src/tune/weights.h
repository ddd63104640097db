// What losing gradients costs a training, per layer and magnitude: the f^S and f^L of DLCP's
// appendix B, as a user states them.
//
// The cost of losing a share r of the small (large) gradients of layer l is layer_l · small ·
// r^exponent (layer_l · large · r^exponent). All layers of a queue lose the same share, so the
// weight of a queue is the sum over its layers.
//
// A default is one divided by the loss, in per cent, that figure 5 of the paper tolerates without
// more rounds: front layers 1.1, back layers 0.4, and a straight line between; small gradients 1.6,
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

namespace thalweg::tune {

struct ConvergenceWeights {
  double front = 1 / 1.1;  // of the first layer in the forward pass
  double back = 1 / 0.4;   // of the last layer
  double small = 1 / 1.6;
  double large = 1 / 0.1;
  double exponent = 1;
  std::map<std::string, double, std::less<>> layers;  // by name: replace the value on the line

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

// How a model's layers, front first, are divided over the data queues.
struct QueueLoads {
  std::vector<double> shares;        // share of the bytes
  std::vector<LossWeights> weights;  // sum over the queue's layers, divided by the number of layers
  std::vector<std::size_t> first;  // first layer of each queue; one more entry ends the last queue
};

// Requires at least one layer and 1 <= data_queues. An error names a layer of the weights that the
// model does not have.
Result<QueueLoads> queue_loads(std::span<const TunedLayer> layers, std::size_t data_queues,
                               const ConvergenceWeights& weights);

}  // namespace thalweg::tune
