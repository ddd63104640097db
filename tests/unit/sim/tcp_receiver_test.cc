#include <gtest/gtest.h>

#include <vector>

#include "base/prng.h"
#include "sim/hosts/transport.h"

namespace thalweg::sim {
namespace {

TEST(TcpReceiver, on_data__in_order_moves_on) {
  Receiver receiver(300);
  EXPECT_EQ(receiver.on_data(0, 100), 100U);
  EXPECT_EQ(receiver.on_data(100, 100), 200U);
  EXPECT_FALSE(receiver.complete());
  EXPECT_EQ(receiver.on_data(200, 100), 300U);
  EXPECT_TRUE(receiver.complete());
  EXPECT_EQ(receiver.duplicate_bytes(), 0U);
}

TEST(TcpReceiver, on_data__hole_holds_back_until_filled) {
  Receiver receiver(500);
  EXPECT_EQ(receiver.on_data(100, 100), 0U);
  EXPECT_EQ(receiver.on_data(300, 100), 0U);
  EXPECT_EQ(receiver.on_data(0, 100), 200U);
  EXPECT_EQ(receiver.on_data(200, 100), 400U);
  EXPECT_EQ(receiver.on_data(400, 100), 500U);
  EXPECT_TRUE(receiver.complete());
  EXPECT_EQ(receiver.duplicate_bytes(), 0U);
}

TEST(TcpReceiver, on_data__counts_what_came_twice) {
  Receiver receiver(1000);
  receiver.on_data(0, 100);
  EXPECT_EQ(receiver.on_data(50, 100), 150U);
  EXPECT_EQ(receiver.duplicate_bytes(), 50U);
  receiver.on_data(300, 100);
  receiver.on_data(500, 100);
  // Joins both stretches and repeats all of them.
  receiver.on_data(300, 300);
  EXPECT_EQ(receiver.duplicate_bytes(), 250U);
  receiver.on_data(0, 10);
  EXPECT_EQ(receiver.duplicate_bytes(), 260U);
  EXPECT_EQ(receiver.on_data(150, 150), 600U);
}

// Compares any order, overlap and repetition with a byte map.
TEST(TcpReceiver, random__agrees_with_a_byte_map) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Prng prng(seed);
    const std::uint64_t size = 1 + prng.below(2000);
    Receiver receiver(size);
    std::vector<bool> arrived(size);
    std::uint64_t duplicates = 0;
    for (int step = 0; step < 200; ++step) {
      const std::uint64_t begin = prng.below(size);
      const std::uint64_t length = 1 + prng.below(std::min<std::uint64_t>(size - begin, 200));
      for (std::uint64_t i = begin; i < begin + length; ++i) {
        if (arrived[i]) ++duplicates;
        arrived[i] = true;
      }
      std::uint64_t expected = 0;
      while (expected < size && arrived[expected]) ++expected;
      ASSERT_EQ(receiver.on_data(begin, static_cast<std::uint32_t>(length)), expected);
      ASSERT_EQ(receiver.duplicate_bytes(), duplicates);
      ASSERT_EQ(receiver.complete(), expected == size);
    }
  }
}

}  // namespace
}  // namespace thalweg::sim
