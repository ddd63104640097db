// Partition: cuts a tensor into segments, each of which travels in one packet.
//
// Every segment holds whole elements, so each one can be summed, dropped or applied without the
// others. All segments are equally long except the last, which may be shorter. So a segment's index
// alone says which bytes of the tensor it holds, and headers carry nothing more.
//
// Invariants:
// 1. Segments are disjoint, in order, and cover the tensor exactly; none is empty.
// 2. Every segment's offset and length is a multiple of the element size.
// 3. segment_size() is the largest such length that fits the payload.
#pragma once

#include <cstdint>

#include <thalweg/result.h>

#include "base/units.h"

namespace thalweg::tensor {

struct Segment {
  Bytes offset;
  Bytes length;
  bool operator==(const Segment&) const = default;
};

class Partition {
 public:
  // Fails on a negative count, an element size below one byte, a payload that holds no element, and
  // a tensor of too many bytes or segments. A tensor without elements has no segments.
  static Result<Partition> make(std::int64_t elements, Bytes element_size, Bytes payload);

  [[nodiscard]] std::int32_t segment_count() const { return segment_count_; }
  [[nodiscard]] Bytes tensor_size() const { return tensor_size_; }
  // The length of every segment but the last.
  [[nodiscard]] Bytes segment_size() const { return segment_size_; }

  // Requires 0 <= index < segment_count().
  [[nodiscard]] Segment segment(SegmentIndex index) const;
  // The segment that holds the byte at `offset`. Requires 0 <= offset < tensor_size().
  [[nodiscard]] SegmentIndex segment_at(Bytes offset) const;

 private:
  Partition(Bytes tensor_size, Bytes segment_size, std::int32_t segment_count)
      : tensor_size_(tensor_size), segment_size_(segment_size), segment_count_(segment_count) {}

  Bytes tensor_size_;
  Bytes segment_size_;
  std::int32_t segment_count_;
};

}  // namespace thalweg::tensor
