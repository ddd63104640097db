#include "tensor/partition.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace thalweg::tensor {

Result<Partition> Partition::make(std::int64_t elements, Bytes element_size, Bytes payload) {
  if (elements < 0) {
    return Error(fmt::format("a tensor of {} elements: the count must be 0 or more", elements));
  }
  if (element_size < Bytes(1)) {
    return Error(fmt::format("an element of {} bytes: the size must be 1 byte or more",
                             element_size.count()));
  }
  if (payload < element_size) {
    return Error(fmt::format(
        "a packet payload of {} bytes does not hold one element of {} bytes: the payload must be "
        "at least the element size",
        payload.count(), element_size.count()));
  }
  constexpr std::int64_t kMaxBytes = std::numeric_limits<std::int64_t>::max();
  if (elements > kMaxBytes / element_size.count()) {
    return Error(fmt::format("a tensor of {} elements of {} bytes: at most {} bytes are allowed",
                             elements, element_size.count(), kMaxBytes));
  }
  const std::int64_t elements_per_segment = payload.count() / element_size.count();
  const std::int64_t segments =
      elements / elements_per_segment + (elements % elements_per_segment == 0 ? 0 : 1);
  constexpr std::int64_t kMaxSegments = std::numeric_limits<std::int32_t>::max();
  if (segments > kMaxSegments) {
    return Error(fmt::format(
        "a tensor of {} elements of {} bytes in payloads of {} bytes has {} segments: at most {} "
        "are allowed",
        elements, element_size.count(), payload.count(), segments, kMaxSegments));
  }
  return Partition(element_size * elements, element_size * elements_per_segment,
                   static_cast<std::int32_t>(segments));
}

Segment Partition::segment(SegmentIndex index) const {
  const bool inside = index.valid() && index.value() < segment_count_;
  CHECK(inside, "segment {} of {}", index.value(), segment_count_);
  const Bytes offset = segment_size_ * index.value();
  return {offset, std::min(segment_size_, tensor_size_ - offset)};
}

SegmentIndex Partition::segment_at(Bytes offset) const {
  CHECK(offset >= Bytes(0) && offset < tensor_size_, "byte {} of a tensor of {}", offset.count(),
        tensor_size_.count());
  return SegmentIndex(static_cast<std::int32_t>(offset.count() / segment_size_.count()));
}

}  // namespace thalweg::tensor
