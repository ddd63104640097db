#include "tensor/tags.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/prng.h"
#include "tensor/magnitude.h"

namespace thalweg::tensor {
namespace {

// After the means of this many segments, their part of the sample is taken, while the elements are
// in the cache.
constexpr std::size_t kSegmentsAtOnce = 64;
constexpr std::uint8_t kEcnMask = 3;
constexpr std::uint8_t kEcnCapable = 2;  // ECT(0), RFC 3168

// Makes NaN sort and compare as infinity.
double ordered(double magnitude) {
  return std::isnan(magnitude) ? std::numeric_limits<double>::infinity() : magnitude;
}

// The upper median.
template <class T>
T median_of(std::vector<T>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// The bits of a float without its sign. As whole numbers they sort like the magnitudes, with NaN
// above infinity.
template <class Unsigned>
std::uint64_t magnitude_bits(const std::byte* at) {
  Unsigned bits = 0;
  std::memcpy(&bits, at, sizeof(bits));
  return bits & static_cast<Unsigned>(std::numeric_limits<Unsigned>::max() >> 1);
}

template <class Unsigned>
double magnitude_of(DType type, std::uint64_t bits) {
  const auto narrow = static_cast<Unsigned>(bits);
  double magnitude = 0;
  mean_magnitudes(type, &narrow, 1, 1, &magnitude);
  return ordered(magnitude);
}

std::size_t sample_size(std::size_t count, double share) {
  const auto wanted = static_cast<std::size_t>(std::ceil(share * static_cast<double>(count)));
  return std::min(count, std::max(wanted, kLeastSample));
}

// Walks over a tensor and takes the sample of sampled_median().
class MedianSampler {
 public:
  MedianSampler(DType type, const void* data, std::size_t count, const MagnitudeRule& rule,
                std::vector<std::uint64_t>& bits)
      : type_(type),
        data_(static_cast<const std::byte*>(data)),
        count_(count),
        wanted_(sample_size(count, rule.sample)),
        prng_(rule.seed),
        bits_(bits) {
    bits_.clear();
    bits_.reserve(wanted_);
  }

  // Takes one element of each stretch that lies before `end` and was not sampled yet.
  void walk_to(std::size_t end) {
    while (bits_.size() < wanted_) {
      const std::size_t length = count_ / wanted_ + (bits_.size() < count_ % wanted_ ? 1 : 0);
      if (begin_ + length > end) return;
      const std::size_t at = begin_ + (length == 1 ? 0 : prng_.below(length));
      bits_.push_back(take(data_ + at * size_of(type_)));
      begin_ += length;
    }
  }

  // Requires that walk_to() has reached the tensor's end.
  double median() {
    CHECK(bits_.size() == wanted_);
    const std::uint64_t middle = median_of(bits_);
    switch (size_of(type_)) {
      case 1:
        return magnitude_of<std::uint8_t>(type_, middle);
      case 2:
        return magnitude_of<std::uint16_t>(type_, middle);
      case 4:
        return magnitude_of<std::uint32_t>(type_, middle);
      default:
        return magnitude_of<std::uint64_t>(type_, middle);
    }
  }

 private:
  [[nodiscard]] std::uint64_t take(const std::byte* at) const {
    switch (size_of(type_)) {
      case 1:
        return magnitude_bits<std::uint8_t>(at);
      case 2:
        return magnitude_bits<std::uint16_t>(at);
      case 4:
        return magnitude_bits<std::uint32_t>(at);
      default:
        return magnitude_bits<std::uint64_t>(at);
    }
  }

  DType type_;
  const std::byte* data_;
  std::size_t count_;
  std::size_t wanted_;
  Prng prng_;
  std::vector<std::uint64_t>& bits_;
  std::size_t begin_ = 0;  // where the next stretch begins
};

}  // namespace

std::uint8_t priority_of_layer(std::size_t layer, std::size_t layers, std::size_t data_queues) {
  CHECK(layer < layers && data_queues >= 1 && data_queues <= kDataPriorities,
        "layer {} of {} on {} queues", layer, layers, data_queues);
  return static_cast<std::uint8_t>(kControlPriority + 1 +
                                   spread_evenly(layer, layers, data_queues));
}

double sampled_median(DType type, const void* data, std::size_t count, const MagnitudeRule& rule,
                      std::vector<std::uint64_t>& scratch) {
  CHECK(count > 0);
  MedianSampler sampler(type, data, count, rule, scratch);
  sampler.walk_to(count);
  return sampler.median();
}

MagnitudeTagger::MagnitudeTagger(MagnitudeRule rule) : rule_(rule) {
  CHECK(rule.sample > 0 && rule.sample <= 1, "a sample of {}", rule.sample);
  CHECK(rule.head == 0 || rule.reference == MagnitudeReference::kSegmentMedian);
}

double MagnitudeTagger::measure(DType type, const void* data, const Partition& partition) {
  const std::size_t size = size_of(type);
  const auto count = static_cast<std::size_t>(partition.tensor_size().count()) / size;
  const auto stretch = static_cast<std::size_t>(partition.segment_size().count()) / size;
  means_.resize(static_cast<std::size_t>(partition.segment_count()));
  if (rule_.reference == MagnitudeReference::kSegmentMedian) {
    if (rule_.head == 0) {
      mean_magnitudes(type, data, count, stretch, means_.data());
    } else {
      for (std::size_t i = 0; i < means_.size(); ++i) {
        const std::size_t begin = i * stretch + rule_.head;
        const std::size_t end = std::min(count, (i + 1) * stretch);
        CHECK(begin < end, "a segment of {} elements", end - i * stretch);
        mean_magnitudes(type, static_cast<const std::byte*>(data) + begin * size, end - begin,
                        end - begin, &means_[i]);
      }
    }
    sorted_.resize(means_.size());
    std::ranges::transform(means_, sorted_.begin(), ordered);
    return median_of(sorted_);
  }
  MedianSampler sampler(type, data, count, rule_, sample_);
  for (std::size_t first = 0; first < means_.size(); first += kSegmentsAtOnce) {
    const std::size_t begin = first * stretch;
    const std::size_t end = std::min(count, begin + kSegmentsAtOnce * stretch);
    mean_magnitudes(type, static_cast<const std::byte*>(data) + begin * size, end - begin, stretch,
                    means_.data() + first);
    sampler.walk_to(end);
  }
  return sampler.median();
}

void MagnitudeTagger::tag(DType type, const void* data, const Partition& partition,
                          std::uint8_t priority, std::span<SegmentTag> out) {
  CHECK(priority < kPriorityCount, "priority {}", priority);
  CHECK(out.size() == static_cast<std::size_t>(partition.segment_count()));
  if (out.empty()) return;
  const double reference = measure(type, data, partition);
  const bool finite = std::isfinite(reference);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double mean = means_[i];
    const bool above = finite ? !(mean <= reference) : !std::isfinite(mean);
    out[i] = {.priority = priority, .important = above};
  }
}

std::uint8_t dscp_of(std::uint8_t priority, const DscpTable& table) {
  CHECK(priority < kPriorityCount, "priority {}", priority);
  return table[priority];
}

std::optional<std::uint8_t> priority_of_dscp(std::uint8_t dscp, const DscpTable& table) {
  const auto* const found = std::ranges::find(table, dscp);
  if (found == table.end()) return std::nullopt;
  return static_cast<std::uint8_t>(found - table.begin());
}

std::uint8_t traffic_class_of(SegmentTag tag, const DscpTable& table) {
  const unsigned dscp = dscp_of(tag.priority, table);
  return static_cast<std::uint8_t>((dscp << 2) | (tag.important ? kEcnCapable : 0));
}

std::optional<SegmentTag> tag_of_traffic_class(std::uint8_t byte, const DscpTable& table) {
  const auto priority = priority_of_dscp(static_cast<std::uint8_t>(byte >> 2), table);
  if (!priority) return std::nullopt;
  return SegmentTag{.priority = *priority, .important = (byte & kEcnMask) != 0};
}

}  // namespace thalweg::tensor
