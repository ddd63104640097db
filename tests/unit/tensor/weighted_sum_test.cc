#include "tensor/weighted_sum.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/prng.h"

namespace thalweg::tensor::weighted_sum_test {
namespace {

std::vector<std::int32_t> random_elements(std::size_t count, Prng& prng) {
  std::vector<std::int32_t> elements(count);
  for (std::int32_t& each : elements) {
    each = static_cast<std::int32_t>(prng.next()) >> prng.below(31);
  }
  return elements;
}

std::uint64_t sum_of(const std::vector<std::int32_t>& elements) {
  return weighted_sum(std::as_bytes(std::span(elements)).data(), elements.size());
}

TEST(WeightedSum, weights__are_odd_and_no_two_are_the_same) {
  std::set<std::int32_t> all;
  for (std::size_t i = 0; i < kMostWeighted; ++i) {
    EXPECT_GT(weight_of(i), 0) << i;
    EXPECT_EQ(weight_of(i) % 2, 1) << i;
    all.insert(weight_of(i));
  }
  EXPECT_EQ(all.size(), kMostWeighted);
}

TEST(WeightedSum, weighted_sum__as_one_by_one_for_every_count_and_alignment) {
  Prng prng(1);
  for (const std::size_t count : {0U, 1U, 2U, 3U, 5U, 8U, 15U, 16U, 17U, 64U, 255U, 2048U}) {
    const std::vector<std::int32_t> elements = random_elements(count, prng);
    std::uint64_t expected = 0;
    for (std::size_t i = 0; i < count; ++i) {
      expected += static_cast<std::uint64_t>(std::int64_t{elements[i]} * weight_of(i));
    }
    EXPECT_EQ(sum_of(elements), expected) << count;
    std::vector<std::byte> unaligned(count * sizeof(std::int32_t) + 1);
    if (count > 0) std::memcpy(&unaligned[1], elements.data(), count * sizeof(std::int32_t));
    EXPECT_EQ(weighted_sum(unaligned.data() + 1, count), expected) << count;
  }
}

TEST(WeightedSum, weighted_sum__of_a_sum_is_the_sum_of_the_weighted_sums) {
  Prng prng(2);
  std::vector<std::int32_t> sum(100);
  std::uint64_t weighted = 0;
  for (int worker = 0; worker < 32; ++worker) {
    const std::vector<std::int32_t> one = random_elements(sum.size(), prng);
    std::vector<std::int32_t> small = one;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += small[i] >>= 6;
    weighted += sum_of(small);
  }
  EXPECT_EQ(sum_of(sum), weighted);
}

// Every bit of a block, alone and with every other bit of some, and every pair of 16-bit words.
TEST(WeightedSum, weighted_sum__one_or_two_flipped_bits_and_two_swapped_words_change_it) {
  Prng prng(3);
  std::vector<std::int32_t> elements = random_elements(64, prng);
  const std::uint64_t before = sum_of(elements);
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(elements));
  const auto flip = [&](std::size_t bit) { bytes[bit / 8] ^= std::byte{1} << (bit % 8); };
  const std::size_t bits = bytes.size() * 8;
  for (std::size_t a = 0; a < bits; ++a) {
    flip(a);
    ASSERT_NE(sum_of(elements), before) << a;
    for (std::size_t b = a + 1; b < bits; b += 1 + prng.below(7)) {
      flip(b);
      ASSERT_NE(sum_of(elements), before) << a << " and " << b;
      flip(b);
    }
    flip(a);
  }
  // Words that differ in their highest bit only are the hardest to tell apart.
  for (const unsigned value : {0x0000U, 0x8000U, 0x4000U, 0x0001U, 0xffffU}) {
    const auto other = static_cast<std::uint16_t>(value);
    for (std::size_t a = 0; a + 1 < bytes.size(); a += 2) {
      for (std::size_t b = a + 2; b + 1 < bytes.size(); b += 2) {
        std::vector<std::int32_t> one(elements.size());
        const auto words = std::as_writable_bytes(std::span(one));
        std::memcpy(&words[a], &other, sizeof(other));
        const std::uint64_t first = sum_of(one);
        std::swap_ranges(words.begin() + static_cast<std::ptrdiff_t>(a),
                         words.begin() + static_cast<std::ptrdiff_t>(a) + 2,
                         words.begin() + static_cast<std::ptrdiff_t>(b));
        ASSERT_EQ(sum_of(one) == first, other == 0) << a << " and " << b;
      }
    }
  }
}

}  // namespace
}  // namespace thalweg::tensor::weighted_sum_test
