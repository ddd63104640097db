// Computes the tags of segments (DLCP, section 3.2.2): the queue by layer, the importance by
// magnitude.
//
// Queue. Layer x of L goes to data queue x·P/L. Front layers are needed first by the next forward
// pass, so they get the urgent queues; they also bear loss best, so these queues start to drop
// first. Queue 0 is for control messages, and the P data queues are 1 … P.
//
// Importance. A segment whose mean magnitude is above a reference is important: it is sent
// ECN-capable, and switches mark it when they drop others. The reference is
//
//   kElementMedian   the median magnitude of the tensor's elements, from a sample of 0.1 %: the
//                    paper's rule. If the elements follow a bell curve, the mean of magnitudes is
//                    well above their median, and nearly every segment is important.
//   kSegmentMedian   the exact median of the segments' mean magnitudes: half of the segments are
//                    important, as appendix B assumes.
//
// NaN and infinity count as larger than every number, so a segment with one is always important.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <thalweg/dscp.h>
#include <thalweg/types.h>

#include "base/segment_tag.h"
#include "base/units.h"
#include "tensor/partition.h"

namespace thalweg::tensor {

// Divides a row of `items` things evenly into `parts` parts, and returns the part of one of them:
// ⌊item · parts / items⌋. Requires item < items and a product that does not overflow.
constexpr std::size_t spread_evenly(std::size_t item, std::size_t items, std::size_t parts) {
  return item * parts / items;
}

// The queue of a layer. Layers are counted from the front. Requires layer < layers and
// 1 <= data_queues <= kDataPriorities.
std::uint8_t priority_of_layer(std::size_t layer, std::size_t layers,
                               std::size_t data_queues = kDataPriorities);

enum class MagnitudeReference : std::uint8_t { kElementMedian, kSegmentMedian };

struct MagnitudeRule {
  MagnitudeReference reference = MagnitudeReference::kElementMedian;
  // kElementMedian: the fraction of the elements in the sample; above 0, at most 1.
  double sample = 0.001;
  std::uint64_t seed = 0;  // seeds the choice of the sample: the same seed gives the same tags
  // Elements at the front of every segment that are not part of the tensor. Only with
  // kSegmentMedian.
  std::size_t head = 0;
};
// A sample has at least this many elements; of a smaller tensor, all.
inline constexpr std::size_t kLeastSample = 256;

// Tags tensors by magnitude. Its only state is scratch memory that it reuses.
class MagnitudeTagger {
 public:
  explicit MagnitudeTagger(MagnitudeRule rule);

  // Tags every segment of a tensor of floats. Requires a float type of the element size that the
  // partition was made with, segments longer than the rule's head, and
  // out.size() == partition.segment_count().
  void tag(DType type, const void* data, const Partition& partition, std::uint8_t priority,
           std::span<SegmentTag> out);

 private:
  // Fills means_ and returns the reference.
  double measure(DType type, const void* data, const Partition& partition);

  MagnitudeRule rule_;
  std::vector<double> means_;  // mean magnitude of each segment
  std::vector<double> sorted_;
  std::vector<std::uint64_t> sample_;
};

// Tags by a rule of the caller: function(index, segment) returns the tag of each segment.
template <class Function>
void tag_segments(const Partition& partition, const Function& function, std::span<SegmentTag> out) {
  for (std::int32_t i = 0; i < partition.segment_count(); ++i) {
    const SegmentIndex index(i);
    out[index.index()] = function(index, partition.segment(index));
  }
}

// The median magnitude of a sample. The elements are divided into as many equal stretches as the
// sample has elements, and the sample takes one element at random from each. Requires a float type
// and count > 0.
double sampled_median(DType type, const void* data, std::size_t count, const MagnitudeRule& rule,
                      std::vector<std::uint64_t>& scratch);

static_assert(std::tuple_size_v<DscpTable> == kPriorityCount);
inline constexpr std::uint8_t kDscpCount = 64;

// The code point of a queue. Requires priority < kPriorityCount.
std::uint8_t dscp_of(std::uint8_t priority, const DscpTable& table = kDefaultDscp);
// The queue of a code point; none if the table does not have it.
std::optional<std::uint8_t> priority_of_dscp(std::uint8_t dscp,
                                             const DscpTable& table = kDefaultDscp);

// The byte of the IP header (ToS, traffic class) for a tag: its DSCP, and ECT(0) if it is
// important.
std::uint8_t traffic_class_of(SegmentTag tag, const DscpTable& table = kDefaultDscp);
// The tag of a packet that arrived with this byte; a packet that a switch marked was ECN-capable.
// None if the table does not have its DSCP.
std::optional<SegmentTag> tag_of_traffic_class(std::uint8_t byte,
                                               const DscpTable& table = kDefaultDscp);

}  // namespace thalweg::tensor
