#include "tensor/partition.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/messages.h"
#include "base/prng.h"

namespace thalweg::tensor {
namespace {

Partition make(std::int64_t elements, std::int64_t element_size, std::int64_t payload) {
  auto partition = Partition::make(elements, Bytes(element_size), Bytes(payload));
  EXPECT_TRUE(partition.ok()) << partition.error().message();
  return *partition;
}

std::string error_of(std::int64_t elements, std::int64_t element_size, std::int64_t payload) {
  return message_of(Partition::make(elements, Bytes(element_size), Bytes(payload)));
}

TEST(Partition, make__payload_that_is_no_multiple_of_the_element) {
  const Partition partition = make(1000, 8, 1401);
  EXPECT_EQ(partition.segment_size(), Bytes(1400));
  EXPECT_EQ(partition.segment_count(), 6);
  EXPECT_EQ(partition.segment(SegmentIndex(0)), (Segment{Bytes(0), Bytes(1400)}));
  EXPECT_EQ(partition.segment(SegmentIndex(5)), (Segment{Bytes(7000), Bytes(1000)}));
}

TEST(Partition, make__last_segment_full) {
  const Partition partition = make(700, 4, 1400);
  EXPECT_EQ(partition.segment_count(), 2);
  EXPECT_EQ(partition.segment(SegmentIndex(1)), (Segment{Bytes(1400), Bytes(1400)}));
}

TEST(Partition, make__no_elements_no_segments) {
  const Partition partition = make(0, 4, 1400);
  EXPECT_EQ(partition.segment_count(), 0);
  EXPECT_EQ(partition.tensor_size(), Bytes(0));
}

TEST(Partition, make__element_as_large_as_the_payload) {
  const Partition partition = make(3, 8, 8);
  EXPECT_EQ(partition.segment_count(), 3);
  EXPECT_EQ(partition.segment(SegmentIndex(2)), (Segment{Bytes(16), Bytes(8)}));
}

TEST(Partition, make__bad_input_is_named) {
  EXPECT_EQ(error_of(10, 8, 7),
            "a packet payload of 7 bytes does not hold one element of 8 bytes: the payload must "
            "be at least the element size");
  EXPECT_NE(error_of(-1, 8, 1400).find("-1 elements"), std::string::npos);
  EXPECT_NE(error_of(1, 0, 1400).find("element of 0 bytes"), std::string::npos);
  EXPECT_NE(error_of(1, 4, -5).find("payload of -5 bytes"), std::string::npos);
}

TEST(Partition, make__more_than_can_be_numbered) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  EXPECT_NE(error_of(kMax / 8 + 1, 8, 1400).find("at most 9223372036854775807 bytes"),
            std::string::npos);
  constexpr std::int64_t kMaxSegments = std::numeric_limits<std::int32_t>::max();
  EXPECT_NE(error_of(kMaxSegments + 1, 8, 8).find("at most 2147483647"), std::string::npos);
  const Partition largest = make(kMaxSegments, 8, 8);
  EXPECT_EQ(largest.segment(SegmentIndex(largest.segment_count() - 1)),
            (Segment{Bytes((kMaxSegments - 1) * 8), Bytes(8)}));
  EXPECT_EQ(make(kMax, 1, kMax).segment_count(), 1);
}

TEST(Partition, segment__outside_is_a_bug) {
  const Partition partition = make(10, 4, 8);
  EXPECT_DEATH((void)partition.segment(SegmentIndex(5)), "segment 5 of 5");
  EXPECT_DEATH((void)partition.segment(SegmentIndex()), "segment -1 of 5");
  EXPECT_DEATH((void)partition.segment_at(Bytes(40)), "byte 40 of a tensor of 40");
}

// Checks the invariants of the header, and compares segment_at() with a walk over every byte.
TEST(Partition, random__segments_cover_the_tensor_with_whole_elements) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Prng prng(seed);
    const auto element_size = static_cast<std::int64_t>(1 + prng.below(16));
    const auto elements = static_cast<std::int64_t>(prng.below(300));
    const auto payload = element_size + static_cast<std::int64_t>(prng.below(100));
    const Partition partition = make(elements, element_size, payload);
    std::int64_t next = 0;
    for (SegmentIndex i(0); i.value() < partition.segment_count(); ++i) {
      const Segment segment = partition.segment(i);
      const std::int64_t length = segment.length.count();
      ASSERT_EQ(segment.offset, Bytes(next));
      ASSERT_GT(length, 0);
      ASSERT_LE(length, payload);
      ASSERT_EQ(length % element_size, 0);
      if (i.value() + 1 < partition.segment_count()) {
        ASSERT_GT(length + element_size, payload);
      }
      for (std::int64_t byte = next; byte < next + length; ++byte) {
        ASSERT_EQ(partition.segment_at(Bytes(byte)), i);
      }
      next += length;
    }
    EXPECT_EQ(next, elements * element_size);
    EXPECT_EQ(partition.tensor_size(), Bytes(next));
  }
}

}  // namespace
}  // namespace thalweg::tensor
