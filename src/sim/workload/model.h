// Layer tables of real networks: the workload that a training iteration puts on the simulator.
//
// A table is data, recorded once on a real device (python/thalweg/record.py); docs/model-format.md
// has the format and says exactly what the times include.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <thalweg/result.h>
#include <thalweg/types.h>
#include "base/units.h"

namespace thalweg::sim {

inline constexpr std::size_t kMaxModelLayers = 65'536;
inline constexpr std::size_t kMaxModelTensors = 1'048'576;  // over all layers that list them
inline constexpr std::int64_t kMaxLayerParameters = 1'000'000'000'000;
inline constexpr std::int64_t kMaxModelBatch = 1'000'000'000;
inline constexpr double kLeastDeviceScale = 0.001;
inline constexpr double kMostDeviceScale = 1000;
// The most computation time of one iteration, after scaling.
inline constexpr Duration kMaxComputeTime = Duration::milliseconds(1000) * 86'400;

// The parameters of one module. They are needed together when its forward pass starts, and their
// gradients are ready together when its backward pass ends.
struct ModelLayer {
  std::string name;
  std::int64_t parameters = 0;        // elements, the sum of `tensors`
  std::vector<std::int64_t> tensors;  // elements of each parameter tensor; never empty
  Duration forward;
  Duration backward;

  bool operator==(const ModelLayer&) const = default;
};

// Invariants: 1. There is at least one layer, and each has at least one parameter. 2. Layer names
// differ. 3. Times are at or above zero, and all of them together at most kMaxComputeTime.
struct ModelTable {
  std::string name;
  std::int64_t batch = 0;   // samples a worker computes in one iteration
  std::string sample;       // what one sample is, in words; may be empty
  std::string device;       // what the times were measured on
  double device_scale = 1;  // how much slower than that device; the times below include this factor
  double part = 1;          // share of the network's parameters, times and samples (part_of)
  DType dtype = DType::kFloat32;
  // Each layer is one bucket of gradients, as a trace had it: they are not put together.
  bool as_sent = false;
  // In the order of the forward pass; the backward pass runs them in reverse.
  std::vector<ModelLayer> layers;

  [[nodiscard]] std::int64_t parameters() const;
  [[nodiscard]] Bytes size() const;
  [[nodiscard]] Bytes size_of_layer(std::size_t layer) const;
  [[nodiscard]] Duration forward_time() const;
  [[nodiscard]] Duration backward_time() const;

  bool operator==(const ModelTable&) const = default;
};

// Reads a table and multiplies its times by its device_scale. `source` names it in errors.
Result<ModelTable> model_from_yaml(std::string_view text, std::string_view source);

// The same network with one layer per tensor. The tensors of an original layer are still needed
// together, and their gradients still ready together.
ModelTable by_tensor(const ModelTable& table);

// Scales every tensor, its computation time and the batch by `part`, so that long experiments
// become short: speeds stay the same, but what does not shrink (round trips, timeouts) weighs more.
// Tensors keep at least one element. Requires 0 < part <= 1.
ModelTable part_of(ModelTable table, double part);

// The same network on a device `factor` times slower than the one of the table.
Result<ModelTable> slowed_down(ModelTable table, double factor);

}  // namespace thalweg::sim
