#include "tensor/tags.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <vector>

#include "base/prng.h"
#include "tensor/magnitude.h"
#include "tensor/reference.h"

namespace thalweg::tensor {
namespace {

constexpr std::array<DType, 4> kFloats{DType::kFloat32, DType::kFloat64, DType::kFloat16,
                                       DType::kBFloat16};

// Writes a small whole number, which is exact in every type, into an array of that type.
void put_number(DType type, std::byte* at, int value) {
  const auto as_float = static_cast<float>(value);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &as_float, sizeof(bits));
  const auto number = static_cast<double>(value);
  // Sign and exponent of a float16 from those of a float32; subnormals do not occur.
  const auto half = static_cast<std::uint16_t>(
      value == 0 ? 0 : ((bits >> 16) & 0x8000U) | (((bits & 0x7fffffffU) - (112U << 23)) >> 13));
  const auto brain = static_cast<std::uint16_t>(bits >> 16);
  switch (type) {
    case DType::kFloat32:
      std::memcpy(at, &as_float, sizeof(as_float));
      break;
    case DType::kFloat64:
      std::memcpy(at, &number, sizeof(number));
      break;
    case DType::kFloat16:
      std::memcpy(at, &half, sizeof(half));
      break;
    default:
      std::memcpy(at, &brain, sizeof(brain));
      break;
  }
}

std::vector<std::byte> tensor_of(DType type, const std::vector<int>& values) {
  std::vector<std::byte> data(values.size() * size_of(type));
  for (std::size_t i = 0; i < values.size(); ++i) {
    put_number(type, data.data() + i * size_of(type), values[i]);
  }
  return data;
}

std::vector<int> random_values(Prng& prng, std::size_t count) {
  std::vector<int> values(count);
  for (int& value : values) value = static_cast<int>(prng.below(129)) - 64;
  return values;
}

Partition partition_of(DType type, std::size_t count, std::size_t elements_per_segment) {
  const auto size = static_cast<std::int64_t>(size_of(type));
  return Partition::make(static_cast<std::int64_t>(count), Bytes(size),
                         Bytes(size * static_cast<std::int64_t>(elements_per_segment)))
      .value();
}

std::vector<float> bell_curve(std::size_t count, std::uint64_t seed) {
  Prng prng(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    double sum = -6;
    for (int k = 0; k < 12; ++k) sum += prng.real();
    value = static_cast<float>(sum);
  }
  return values;
}

double share_important(const std::vector<SegmentTag>& tags) {
  return static_cast<double>(std::ranges::count(tags, true, &SegmentTag::important)) /
         static_cast<double>(tags.size());
}

TEST(Tags, priority_of_layer__front_layers_first_and_evenly) {
  EXPECT_EQ(priority_of_layer(0, 161), 1);
  EXPECT_EQ(priority_of_layer(160, 161), 7);
  std::array<int, kPriorityCount> counts{};
  for (std::size_t layer = 0; layer < 161; ++layer) {
    ++counts[priority_of_layer(layer, 161)];
    if (layer > 0) {
      EXPECT_GE(priority_of_layer(layer, 161), priority_of_layer(layer - 1, 161));
    }
  }
  EXPECT_EQ(counts[0], 0);  // for control
  EXPECT_TRUE(std::ranges::all_of(std::span(counts).subspan(1), [](int n) { return n == 23; }));
  EXPECT_EQ(priority_of_layer(0, 1), 1);
  EXPECT_EQ(priority_of_layer(2, 3, 3), 3);
}

TEST(Tags, mean_magnitudes__exact_for_every_type_and_length) {
  for (const DType type : kFloats) {
    for (std::size_t count = 1; count < 200; ++count) {
      Prng prng(count);
      const std::vector<int> values = random_values(prng, count);
      const std::vector<std::byte> data = tensor_of(type, values);
      const std::size_t stretch = 1 + prng.below(count);
      std::vector<double> means((count + stretch - 1) / stretch);
      mean_magnitudes(type, data.data(), count, stretch, means.data());
      for (std::size_t s = 0; s < means.size(); ++s) {
        const std::size_t end = std::min(count, (s + 1) * stretch);
        double sum = 0;
        for (std::size_t i = s * stretch; i < end; ++i) sum += std::abs(values[i]);
        ASSERT_DOUBLE_EQ(means[s], sum / static_cast<double>(end - s * stretch))
            << name_of(type) << ' ' << count << ' ' << stretch << ' ' << s;
      }
    }
  }
}

TEST(Tags, mean_magnitudes__every_8_bit_float) {
  for (const DType type : {DType::kFloat8E4m3fn, DType::kFloat8E5m2}) {
    reference::for_each_target([&](std::int64_t) {
      for (int bits = 0; bits < 256; ++bits) {
        // Every place in a vector has the element once, among zeros.
        const auto element = static_cast<std::uint8_t>(bits);
        const double wanted = std::abs(reference::decode(reference::format_of(type), element));
        for (std::size_t at = 0; at < 67; ++at) {
          std::vector<std::uint8_t> data(67);
          data[at] = element;
          double mean = 0;
          mean_magnitudes(type, data.data(), data.size(), data.size(), &mean);
          if (std::isnan(wanted)) {
            ASSERT_TRUE(std::isnan(mean)) << name_of(type) << ' ' << bits << ' ' << at;
          } else {
            ASSERT_EQ(mean, wanted / 67) << name_of(type) << ' ' << bits << ' ' << at;
          }
        }
      }
    });
    if (HasFatalFailure()) return;
    std::vector<std::uint8_t> sample(1001);
    for (std::size_t i = 0; i < sample.size(); ++i) {
      sample[i] = static_cast<std::uint8_t>((i % 2 == 0 ? 0x80 : 0) | 0x30 | i % 7);
    }
    std::vector<std::uint64_t> scratch;
    EXPECT_EQ(sampled_median(type, sample.data(), sample.size(), {.sample = 1}, scratch),
              reference::decode(reference::format_of(type), 0x33));
  }
}

TEST(Tags, mean_magnitudes__unaligned_and_within_bounds) {
  const std::vector<float> values(1000, -2);
  std::vector<std::byte> bytes(4001);
  std::memcpy(bytes.data() + 1, values.data(), 4000);
  std::vector<double> means(4, 99);
  mean_magnitudes(DType::kFloat32, bytes.data() + 1, 1000, 350, means.data());
  EXPECT_EQ(means, (std::vector<double>{2, 2, 2, 99}));
}

TEST(Tags, mean_magnitudes__special_numbers) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> values(99, 1);
  values[7] = -infinity;
  values[40] = nan;
  std::vector<double> means(3);
  mean_magnitudes(DType::kFloat32, values.data(), 99, 33, means.data());
  EXPECT_EQ(means[0], infinity);
  EXPECT_TRUE(std::isnan(means[1]));
  EXPECT_EQ(means[2], 1);
}

TEST(Tags, sampled_median__of_all_elements_where_they_are_few) {
  std::vector<std::uint64_t> scratch;
  for (const DType type : kFloats) {
    const std::vector<std::byte> data = tensor_of(type, {5, -1, 3, -9, 2});
    EXPECT_EQ(sampled_median(type, data.data(), 5, {.seed = 1}, scratch), 3) << name_of(type);
  }
}

TEST(Tags, sampled_median__near_the_median_and_same_for_the_same_seed) {
  const std::vector<float> values = bell_curve(2'000'000, 1);
  std::vector<std::uint64_t> scratch;
  std::set<double> medians;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const double median =
        sampled_median(DType::kFloat32, values.data(), values.size(), {.seed = seed}, scratch);
    EXPECT_NEAR(median, 0.6745, 0.08) << "seed " << seed;  // of |N(0, 1)|
    EXPECT_EQ(median, sampled_median(DType::kFloat32, values.data(), values.size(), {.seed = seed},
                                     scratch));
    medians.insert(median);
  }
  EXPECT_GT(medians.size(), 10);
}

TEST(Tags, sampled_median__nan_is_above_all_numbers) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> values{nan, 1, 2, nan, 3};
  std::vector<std::uint64_t> scratch;
  EXPECT_EQ(sampled_median(DType::kFloat32, values.data(), 5, {.sample = 1}, scratch), 3);
}

TEST(Tags, tagger__large_segments_are_important_for_every_type) {
  for (const DType type : kFloats) {
    // Segments of 10: magnitudes 1 and, in every third segment, 4.
    std::vector<int> values(300);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = (i / 10 % 3 == 2 ? 4 : 1) * (i % 2 == 0 ? 1 : -1);
    }
    const std::vector<std::byte> data = tensor_of(type, values);
    const Partition partition = partition_of(type, values.size(), 10);
    std::vector<SegmentTag> tags(30);
    for (const auto reference :
         {MagnitudeReference::kElementMedian, MagnitudeReference::kSegmentMedian}) {
      MagnitudeTagger tagger({.reference = reference});
      tagger.tag(type, data.data(), partition, 5, tags);
      for (std::size_t s = 0; s < tags.size(); ++s) {
        EXPECT_EQ(tags[s], (SegmentTag{.priority = 5, .important = s % 3 == 2}))
            << name_of(type) << ' ' << s;
      }
    }
  }
}

TEST(Tags, tagger__bell_curve_makes_nearly_all_important_by_the_papers_rule_and_half_by_ours) {
  const std::vector<float> values = bell_curve(1'400'000, 2);
  const Partition partition = partition_of(DType::kFloat32, values.size(), 350);
  std::vector<SegmentTag> tags(static_cast<std::size_t>(partition.segment_count()));
  MagnitudeTagger paper({});
  paper.tag(DType::kFloat32, values.data(), partition, 1, tags);
  EXPECT_GT(share_important(tags), 0.95);
  MagnitudeTagger ours({.reference = MagnitudeReference::kSegmentMedian});
  ours.tag(DType::kFloat32, values.data(), partition, 1, tags);
  EXPECT_NEAR(share_important(tags), 0.5, 0.001);
}

TEST(Tags, tagger__the_head_of_a_segment_does_not_count) {
  std::vector<float> values(100, 1);
  for (std::size_t i = 0; i < 10; ++i) {
    values[10 * i] = static_cast<float>(1000 - 100 * i);  // falls where the elements rise
    for (std::size_t j = 1; j < 10; ++j) values[10 * i + j] = static_cast<float>(i);
  }
  const Partition partition = partition_of(DType::kFloat32, 100, 10);
  std::vector<SegmentTag> tags(10);
  MagnitudeTagger tagger({.reference = MagnitudeReference::kSegmentMedian, .head = 1});
  tagger.tag(DType::kFloat32, values.data(), partition, 3, tags);
  for (std::size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(tags[i], (SegmentTag{.priority = 3, .important = i > 5})) << i;
  }
}

TEST(Tags, tagger__not_a_number_is_important) {
  std::vector<float> values(100, 1);
  values[15] = std::numeric_limits<float>::quiet_NaN();
  values[27] = std::numeric_limits<float>::infinity();
  const Partition partition = partition_of(DType::kFloat32, 100, 10);
  std::vector<SegmentTag> tags(10);
  for (const auto reference :
       {MagnitudeReference::kElementMedian, MagnitudeReference::kSegmentMedian}) {
    MagnitudeTagger({.reference = reference})
        .tag(DType::kFloat32, values.data(), partition, 1, tags);
    for (std::size_t s = 0; s < tags.size(); ++s) {
      EXPECT_EQ(tags[s].important, s == 1 || s == 2) << s;
    }
  }
}

TEST(Tags, tagger__nothing_to_tag) {
  const Partition partition = partition_of(DType::kFloat32, 0, 10);
  MagnitudeTagger({}).tag(DType::kFloat32, nullptr, partition, 1, {});
}

TEST(Tags, tag_segments__calls_the_callers_function) {
  const Partition partition = partition_of(DType::kFloat32, 25, 10);
  std::vector<SegmentTag> tags(3);
  tag_segments(
      partition,
      [](SegmentIndex index, const Segment& segment) {
        return SegmentTag{.priority = static_cast<std::uint8_t>(index.value() + 1),
                          .important = segment.length < Bytes(40)};
      },
      tags);
  EXPECT_EQ(tags, (std::vector<SegmentTag>{{1, false}, {2, false}, {3, true}}));
}

TEST(Dscp, table__distinct_local_use_and_ordered) {
  std::set<std::uint8_t> codes;
  for (std::uint8_t p = 0; p < kPriorityCount; ++p) {
    const std::uint8_t dscp = dscp_of(p);
    EXPECT_LT(dscp, kDscpCount);
    EXPECT_EQ(dscp % 4, 3);      // RFC 2474, pool 2
    EXPECT_EQ(dscp / 8, 7 - p);  // the class selector bits
    EXPECT_EQ(priority_of_dscp(dscp), p);
    codes.insert(dscp);
  }
  EXPECT_EQ(codes.size(), kPriorityCount);
  EXPECT_EQ(priority_of_dscp(0), std::nullopt);
  EXPECT_EQ(priority_of_dscp(255), std::nullopt);
}

TEST(Dscp, traffic_class__there_and_back) {
  for (std::uint8_t p = 0; p < kPriorityCount; ++p) {
    for (const bool important : {false, true}) {
      const SegmentTag tag{.priority = p, .important = important};
      const std::uint8_t byte = traffic_class_of(tag);
      EXPECT_EQ(byte & 3, important ? 2 : 0);
      EXPECT_EQ(tag_of_traffic_class(byte), tag);
    }
    // A packet that a switch marked was ECN-capable.
    const std::uint8_t sent = traffic_class_of({.priority = p, .important = true});
    EXPECT_EQ(tag_of_traffic_class(sent | 3), (SegmentTag{.priority = p, .important = true}));
  }
  EXPECT_EQ(tag_of_traffic_class(0), std::nullopt);
}

}  // namespace
}  // namespace thalweg::tensor
