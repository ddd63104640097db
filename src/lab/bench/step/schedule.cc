#include "lab/bench/step/schedule.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace thalweg::lab::step {
namespace {

// A bucket while it is filled.
struct Filling {
  std::int64_t bytes = 0;
  Duration forward;
  Duration backward;
};

std::vector<Filling> fill(const sim::ModelTable& model, Bytes bucket) {
  const auto element = static_cast<std::int64_t>(size_of(model.dtype));
  std::vector<Filling> filled(1);
  Bytes limit = std::min(bucket, kDdpFirstBucket);
  bool full = false;
  for (std::size_t l = model.layers.size(); l-- > 0;) {
    const sim::ModelLayer& layer = model.layers[l];
    if (std::exchange(full, false)) filled.emplace_back();
    // The layer waits for all its tensors. The last of them to come back are those of the bucket
    // that was filled first, because that one is the furthest from the front.
    filled.back().forward = filled.back().forward + layer.forward;
    filled.back().backward = filled.back().backward + layer.backward;
    for (std::size_t t = layer.tensors.size(); t-- > 0;) {
      if (std::exchange(full, false)) filled.emplace_back();
      filled.back().bytes += layer.tensors[t] * element;
      if (filled.back().bytes < limit.count() && !model.as_sent) continue;
      full = true;
      limit = bucket;
    }
  }
  return filled;
}

Duration scaled(Duration time, double scale) { return Duration::seconds(time.s() * scale); }

template <class Member>
Duration sum_of(const std::vector<Bucket>& buckets, Member member) {
  Duration sum;
  for (const Bucket& bucket : buckets) sum = sum + bucket.*member;
  return sum;
}

}  // namespace

Bytes Schedule::size() const {
  std::int64_t sum = 0;
  for (const Bucket& bucket : buckets) sum += bucket.size().count();
  return Bytes(sum);
}
Duration Schedule::forward() const { return sum_of(buckets, &Bucket::forward); }
Duration Schedule::backward() const { return sum_of(buckets, &Bucket::backward); }

Result<Schedule> schedule_of(const sim::ModelTable& model, const ScheduleOptions& options) {
  if (model.forward_time() + model.backward_time() == Duration()) {
    return Error(fmt::format(
        "{}: the model has no times: forward_us and backward_us are 0 in every layer, so there is "
        "no step to replay",
        model.name));
  }
  Schedule schedule{.order = options.order, .buckets = {}};
  for (const Filling& filling : fill(model, options.bucket)) {
    const double elements = static_cast<double>(filling.bytes) * options.scale / 4;
    schedule.buckets.push_back({.elements = std::max<std::int64_t>(1, std::llround(elements)),
                                .forward = scaled(filling.forward, options.scale),
                                .backward = scaled(filling.backward, options.scale)});
  }
  return schedule;
}

sim::ModelTable table_of(const Schedule& schedule) {
  sim::ModelTable table{
      .name = "step", .batch = 1, .sample = {}, .device = "emulated", .layers = {}};
  for (std::size_t b = schedule.buckets.size(); b-- > 0;) {
    const Bucket& bucket = schedule.buckets[b];
    table.layers.push_back({.name = fmt::format("bucket{}", b),
                            .parameters = bucket.elements,
                            .tensors = {bucket.elements},
                            .forward = bucket.forward,
                            .backward = bucket.backward});
  }
  return table;
}

}  // namespace thalweg::lab::step
