// A training step as `thalweg bench step` replays it: the buckets of gradients that DDP makes of a
// model, and how long the device computes before each is ready.
//
// Buckets are those of PyTorch's DistributedDataParallel. Gradients are taken in the order of the
// backward pass, and a bucket is closed by the gradient that fills it. The first bucket is small,
// so that communication begins early. The buckets of a Chakra trace are its own.
#pragma once

#include <cstdint>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "sim/workload/model.h"

namespace thalweg::lab::step {

// The sizes of DDP's buckets: of all but the first, and of the first.
inline constexpr Bytes kDdpBucket{25 << 20};
inline constexpr Bytes kDdpFirstBucket{1 << 20};

// How the next step depends on the gradients.
enum class Order : std::uint8_t {
  kDdp,        // a step begins when all gradients of the one before are back
  kLayerwise,  // a layer's forward pass begins when the layer's own gradients are back
};

// One bucket. Its tensor is sent as float32, whatever the type of the model, in as many bytes.
struct Bucket {
  std::int64_t elements = 0;
  Duration forward;   // of the layers that wait for this bucket and for none behind it
  Duration backward;  // from the moment the bucket before is ready (or the pass begins)
  [[nodiscard]] Bytes size() const { return Bytes(elements * 4); }
};

struct Schedule {
  Order order = Order::kDdp;
  std::vector<Bucket> buckets;  // in the order of the backward pass, the back of the model first

  [[nodiscard]] Bytes size() const;
  [[nodiscard]] Duration forward() const;
  [[nodiscard]] Duration backward() const;
};

struct ScheduleOptions {
  Order order = Order::kDdp;
  Bytes bucket = kDdpBucket;  // of the whole model; scaled with it
  double scale = 1;           // of bytes and times; above 0 and at most 1
};
// Buckets are chosen before the model is scaled, so they hold the same gradients at every scale.
// Fails if the table has no computing times, because then there is no step to replay.
[[nodiscard]] Result<Schedule> schedule_of(const sim::ModelTable& model,
                                           const ScheduleOptions& options);

// The same step for the simulator: every bucket is a layer, the front of the model first.
[[nodiscard]] sim::ModelTable table_of(const Schedule& schedule);

}  // namespace thalweg::lab::step
